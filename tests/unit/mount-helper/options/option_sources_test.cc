#include "mount-helper/options/option_sources.h"

#include <functional>

#include "mount-helper/commands/commands.h"
#include "mount-helper/options/option_table.h"
#include "tests/support/catch.h"
#include "tests/unit/mount-helper/temporary_directory.h"

using namespace clairfs;

namespace {

/// `arguments` as flags of a command line.
OptionValues parse_flags(const std::vector<std::string>& arguments) {
  CLI::App app;
  add_option_flags(app);
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());  // as CLI11 wants them
  app.parse(reversed);
  return collected_flags(app);
}

MountOptions applied(const Result<OptionValues>& values) {
  REQUIRE(values);
  MountOptions options;
  const Status status = apply_values(*values, options);
  INFO(status.error().message);
  REQUIRE(status);
  return options;
}

std::string list_error(const std::string& list) {
  const auto values = parse_mount_option_list(list, false);
  if (!values) return values.error().message;
  MountOptions options;
  return apply_values(*values, options).error().message;
}

}  // namespace

TEST_CASE("the three doors make the same options") {
  const MountOptions flags = applied(parse_flags({"--ram",
                                                  "2G",
                                                  "--nvme=/d:10G",
                                                  "--nvme",
                                                  "/e",
                                                  "--staging",
                                                  "512M",
                                                  "--page-cache",
                                                  "3G",
                                                  "--chunk",
                                                  "1M",
                                                  "--record-chunk",
                                                  "*.h5=256K",
                                                  "--record-chunk=a=b/*=64K",
                                                  "--io",
                                                  "threads",
                                                  "--pfs-concurrency",
                                                  "7",
                                                  "--fuse-threads",
                                                  "3",
                                                  "--catalog-dir",
                                                  "/c",
                                                  "--check",
                                                  "directories",
                                                  "--allow-other",
                                                  "--ro",
                                                  "--noexec",
                                                  "--log-level",
                                                  "debug",
                                                  "--log-file",
                                                  "/l",
                                                  "--peers=off",
                                                  "--job=node0:5200",
                                                  "--rank=3",
                                                  "--nodes=8",
                                                  "--job-secret=/k",
                                                  "--job-timeout=30",
                                                  "--network=rc,self",
                                                  "--infer=off",
                                                  "--placement=nopfs"}));
  const MountOptions list = applied(
      parse_mount_option_list("ram=2G,nvme=/d:10G,nvme=/"
                              "e,staging=512M,page-cache=3G,chunk=1M,record-chunk=*.h5=256K,record_chunk=a=b/"
                              "*=64K,io=threads,pfs_concurrency=7,fuse-threads=3,catalog-dir=/c,"
                              "check=directories,allow_other,ro,noexec,log-level=debug,log_file=/l,peers=off,"
                              "job=node0:5200,rank=3,nodes=8,job_secret=/"
                              "k,job-timeout=30,network=rc\\,self,infer=off,placement=nopfs",
                              false));
  const MountOptions config = applied(parse_config(
      "# comment\nram = "
      "2G\nnvme=/d:10G\n\nnvme=/e\nstaging=512M\npage-cache=3G\nchunk=1M\nrecord-chunk=*.h5=256K\n"
      "record-chunk = a=b/*=64K\nio=threads\n"
      "pfs-concurrency=7\nfuse-threads=3\ncatalog-dir=/c\r\ncheck=directories\nallow-other\nro=true\n"
      "noexec\nlog-level=debug\nlog-file=/l\npeers=off\njob=node0:5200\nrank=3\nnodes=8\n"
      "job-secret=/k\njob-timeout=30\nnetwork=rc,self\ninfer=off\nplacement=nopfs",
      "f"));

  CHECK(flags.ram == 2ULL << 30);
  CHECK(flags.nvme == std::vector<NvmeDir>{{"/d", 10ULL << 30}, {"/e", 0}});
  CHECK(flags.staging == 512ULL << 20);
  CHECK(flags.page_cache == 3ULL << 30);
  CHECK(flags.chunk == 1ULL << 20);
  CHECK(flags.record_chunks == std::vector<RecordChunk>{{"*.h5", 256 << 10}, {"a=b/*", 64 << 10}});
  CHECK(flags.io == IoKind::threads);
  CHECK(flags.pfs_concurrency == 7);
  CHECK(flags.fuse_threads == 3);
  CHECK(flags.catalog_dir == "/c");
  CHECK(flags.check == "directories");
  CHECK((flags.allow_other && flags.read_only && flags.no_exec));
  CHECK(flags.log_level == "debug");
  CHECK(flags.log_file == "/l");
  CHECK_FALSE(flags.peers);
  CHECK(flags.job == HostPort{"node0", 5200});
  CHECK((flags.rank == 3 && flags.nodes == 8));
  CHECK(flags.job_secret_file == "/k");
  CHECK(flags.job_timeout == std::chrono::seconds(30));
  CHECK(flags.network == "rc,self");
  CHECK(flags.infer == "off");
  CHECK(flags.placement == "nopfs");
  CHECK(list == flags);
  CHECK(config == flags);

  SECTION("no option of the table was left at its default above") {
    const MountOptions defaults;
    for (const OptionSpec& spec : option_table()) {
      INFO(spec.name);
      if (spec.name != "config") CHECK(spec.get(flags) != spec.get(defaults));
    }
  }
  SECTION("what options_text() prints is a config file for the same options") {
    CHECK(applied(parse_config(options_text(flags), "f")) == flags);
  }
}

TEST_CASE("what mount(8) and systemd add is accepted") {
  const auto values = parse_mount_option_list(
      "rw,nosuid,nodev,exec,relatime,noauto,nofail,_netdev,user=me,x-systemd.automount,X-mount.mkdir,comment="
      "a,,",
      false);
  CHECK(applied(values) == MountOptions());
}

TEST_CASE("a comma in a path of -o is written with a backslash") {
  CHECK(applied(parse_mount_option_list("nvme=/a\\,b:1G,ro", false)).nvme ==
        std::vector<NvmeDir>{{"/a,b", 1ULL << 30}});
}

TEST_CASE("the size of an NVMe directory may be a share of what is free") {
  const auto nvme = applied(parse_flags({"--nvme", "/a:50%", "--nvme", "/b%"})).nvme;
  CHECK(nvme == std::vector<NvmeDir>{{"/a", 0, 0, 50}, {"/b%", 0}});
  MountOptions options;
  options.nvme = nvme;
  CHECK(options_text(options).find("nvme=/a:50%\nnvme=/b%\n") != std::string::npos);
}

TEST_CASE("a colon within a path does not start a size") {
  CHECK(applied(parse_flags({"--nvme", "/a:b/c"})).nvme == std::vector<NvmeDir>{{"/a:b/c", 0}});
}

TEST_CASE("the last value of an option counts, and a later door replaces all of an earlier one") {
  CHECK(applied(parse_flags({"--ram", "1G", "--ram", "2G"})).ram == 2ULL << 30);
  const auto base = parse_mount_option_list("nvme=/a,ram=1G", false);
  REQUIRE(base);
  const MountOptions merged = applied(merge(*base, parse_flags({"--nvme", "/b"})));
  CHECK(merged.nvme == std::vector<NvmeDir>{{"/b", 0}});
  CHECK(merged.ram == 1ULL << 30);
}

TEST_CASE("flags win over -o, which wins over the config file, which wins over defaults") {
  const TemporaryDirectory directory;
  const std::string config = directory.write("clairfs.conf", "ram=1G\nstaging=1G\nchunk=1M\nallow-other\n");
  MountRequest request;
  request.source = "/s";
  request.mountpoint = "/m";
  request.option_list = "staging=2G,ram=2G,config=" + config;
  request.flags = parse_flags({"--ram", "3G", "--allow-other=false"});
  MountOptions defaults;
  defaults.pfs_concurrency = 9;

  const auto options = gather_options(request, defaults);
  REQUIRE(options);
  CHECK(options->source == "/s");
  CHECK(options->mountpoint == "/m");
  CHECK(options->ram == 3ULL << 30);
  CHECK(options->staging == 2ULL << 30);
  CHECK(options->chunk == 1ULL << 20);
  CHECK(options->pfs_concurrency == 9);
  CHECK(!options->allow_other);
  CHECK(options->config_file == config);
}

TEST_CASE("files of records may be cut into smaller chunks than others") {
  const MountOptions options = applied(parse_flags({"--chunk=64K", "--record-chunk=*.h5=16K"}));
  CHECK(options.chunk == 64 << 10);
  CHECK(options.record_chunks == std::vector<RecordChunk>{{"*.h5", 16 << 10}});
}

TEST_CASE("bad options give one line that names where, what and what would be right") {
  CHECK_THAT(list_error("bla=1"), Contains("unknown option 'bla=1'"));
  CHECK_THAT(list_error("ram"), Contains("-o ram: the value is missing; write ram=SIZE"));
  CHECK_THAT(list_error("ram=many"), Contains("-o ram: 'many' is not a size"));
  CHECK_THAT(list_error("chunk=5000"), Contains("multiple of 4096"));
  CHECK_THAT(list_error("chunk=32K"), Contains("64.0 KiB to 64.0 MiB"));
  CHECK_THAT(list_error("chunk=128M"), Contains("64.0 KiB to 64.0 MiB"));
  CHECK_THAT(list_error("record-chunk=*.h5"), Contains("not of the form GLOB=SIZE"));
  CHECK_THAT(list_error("record-chunk==64K"), Contains("not of the form GLOB=SIZE"));
  CHECK_THAT(list_error("record-chunk=*.h5=8K"), Contains("16.0 KiB to 64.0 MiB"));
  CHECK_THAT(list_error("io=fast"), Contains("-o io: 'fast' is not one of auto, uring, threads"));
  CHECK_THAT(list_error("check=some"), Contains("full, directories"));
  CHECK_THAT(list_error("log-level=loud"), Contains("not one of debug, info"));
  CHECK_THAT(list_error("nvme=/d:10X"), Contains("-o nvme: '10X' is not a size"));
  CHECK_THAT(list_error("nvme=:1G"), Contains("directory is missing"));
  CHECK_THAT(list_error("nvme=/d:0"), Contains("keeps nothing"));
  CHECK_THAT(list_error("nvme=/d:0%"), Contains("keeps nothing"));
  CHECK_THAT(list_error("nvme=/d:101%"), Contains("-o nvme: '101%' is no share from 0% to 100%"));
  CHECK_THAT(list_error("nvme=/d:%"), Contains("'%' is no share"));
  CHECK_THAT(list_error("fuse-threads=0"), Contains("number from 1"));
  CHECK_THAT(list_error("pfs-concurrency=4x"), Contains("'4x' is not a number"));
  CHECK_THAT(list_error("ro=maybe"), Contains("neither true nor false"));
  CHECK_THAT(list_error("catalog-dir="), Contains("path is empty"));
  CHECK(list_error("ram=0").empty());
  CHECK(list_error("chunk=64K,chunk=64M").empty());
}

TEST_CASE("mount -s leaves unknown options out, but not bad values") {
  CHECK(applied(parse_mount_option_list("bla,ram=1G", true)).ram == 1ULL << 30);
  CHECK(!parse_mount_option_list("ram", true));
}

TEST_CASE("errors of a config file name its line") {
  CHECK_THAT(parse_config("ram=1G\nbla=2\n", "f.conf").error().message,
             Contains("f.conf:2: unknown option 'bla=2'"));
  CHECK_THAT(parse_config("\n\nram\n", "f.conf").error().message,
             Contains("f.conf:3: ram: the value is missing"));
  CHECK_THAT(parse_config("config=g\n", "f.conf").error().message, Contains("f.conf:1"));
  MountOptions options;
  const auto values = parse_config("chunk=1\n", "f.conf");
  REQUIRE(values);
  CHECK_THAT(apply_values(*values, options).error().message, Contains("f.conf:1: chunk: a chunk of 1 bytes"));
  MountRequest request;
  request.option_list = "config=/nonexistent/clairfs.conf";
  CHECK_THAT(gather_options(request, {}).error().message,
             Contains("/nonexistent/clairfs.conf: No such file"));
}

TEST_CASE("variables of the environment are options, and what is none is left alone") {
  const std::vector<const char*> variables = {"PATH=/bin",
                                              "CLAIRFS_RAM=2G",
                                              "CLAIRFS_PFS_CONCURRENCY=7",
                                              "CLAIRFS_ALLOW_OTHER=yes",
                                              "CLAIRFS_BOGUS=1",
                                              "CLAIRFS_JOB_SECRET=hush",
                                              "CLAIRFS_STAGING=",
                                              "CLAIRFS_NVME=/d:1G",
                                              "CLAIRFS_MPI_LIBRARY=x",
                                              nullptr};
  const OptionValues values = values_of_environment(variables.data());
  const MountOptions options = applied(Result<OptionValues>(values));
  CHECK(options.ram == 2ULL << 30);
  CHECK(options.pfs_concurrency == 7);
  CHECK(options.allow_other);
  CHECK(options.nvme == std::vector<NvmeDir>{{"/d", 1 << 30}});
  CHECK(options.job_secret_file.empty());
  CHECK(values.size() == 4);
  CHECK(values_of_environment(nullptr).empty());
  MountOptions wrong;
  const std::vector<const char*> bad = {"CLAIRFS_RAM=lots", nullptr};
  CHECK_THAT(apply_values(values_of_environment(bad.data()), wrong).error().message,
             StartsWith("$CLAIRFS_RAM: "));
}

TEST_CASE("the environment wins over the config file, and loses against -o") {
  const TemporaryDirectory directory;
  MountRequest request;
  request.system_config = directory.write("clairfs.conf", "ram=1M\nchunk=128K\nstaging=3M\n");
  request.environment = {{"ram", {{"2M", "$CLAIRFS_RAM"}}}, {"chunk", {{"256K", "$CLAIRFS_CHUNK"}}}};
  request.option_list = "chunk=512K";
  const auto options = gather_options(request, MountOptions());
  REQUIRE(options);
  CHECK(options->ram == 2 << 20);
  CHECK(options->chunk == 512 << 10);
  CHECK(options->staging == 3 << 20);
  request.flags = {{"config", {{directory.write("other", "staging=4M\n"), "--config"}}}};
  CHECK(gather_options(request, MountOptions())->staging == 4 << 20);  // not both
  request.flags = {{"config", {{"/nowhere", "--config"}}}};
  CHECK_THAT(gather_options(request, MountOptions()).error().message, StartsWith("config file /nowhere: "));
}

TEST_CASE("sizes of memory may be shares of what is available") {
  MountRequest request;
  request.option_list = "ram=50%,staging=0%,page-cache=100%";
  const auto options = gather_options(request, MountOptions());
  REQUIRE(options);
  CHECK(options->staging == 0);
  CHECK(options->page_cache > 0);
  CHECK(options->ram > options->page_cache / 4);  // others take memory meanwhile
  CHECK(options->ram < options->page_cache * 3 / 4);
  for (const char* wrong : {"ram=101%", "ram=%", "staging=-1%", "page-cache=1.5%"})
    CHECK_THAT(list_error(wrong), Contains("no share"));
  CHECK_THAT(list_error("chunk=50%"), !Contains("no share"));
}

TEST_CASE("an option that is spelt wrong is named as it may be meant") {
  CHECK_THAT(list_error("rma=2G"), Contains("did you mean ram?"));
  CHECK_THAT(list_error("allow_othr"), Contains("did you mean allow-other?"));
  CHECK_THAT(list_error("zzzzz"), !Contains("did you mean"));
  CHECK_THAT(parse_config("stagng=1M\n", "f").error().message,
             Contains("f:1:") && Contains("did you mean staging?"));
}
