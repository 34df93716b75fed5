// Keeps a process that reads a file made by somebody else from doing anything but computing, and talking over
// the descriptors that it has.
#pragma once

#include <array>
#include <cerrno>
#include <cstddef>

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

namespace clairfs::hdf5 {

#if defined(__x86_64__)
inline constexpr unsigned kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
inline constexpr unsigned kArchitecture = AUDIT_ARCH_AARCH64;
#elif defined(__riscv)
inline constexpr unsigned kArchitecture = AUDIT_ARCH_RISCV64;
#elif defined(__powerpc64__)
inline constexpr unsigned kArchitecture = AUDIT_ARCH_PPC64LE;
#else
#error "which AUDIT_ARCH_ is this?"
#endif

/// No files, no network, no other processes: all other system calls fail with EPERM. For the whole process
/// and for good; false if the kernel does not do it.
inline bool lock_down() {
  // Memory, time, and what libhdf5 does with the descriptor of the file that it has.
  constexpr std::array kAllowed{
      SYS_read,          SYS_write,          SYS_sendto,       SYS_recvfrom, SYS_close,  SYS_dup,
      SYS_fcntl,         SYS_fstat,          SYS_newfstatat,   SYS_lseek,    SYS_flock,  SYS_mmap,
      SYS_mprotect,      SYS_munmap,         SYS_mremap,       SYS_madvise,  SYS_brk,    SYS_futex,
      SYS_rt_sigaction,  SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_getpid,   SYS_gettid, SYS_getrandom,
      SYS_clock_gettime, SYS_gettimeofday,   SYS_getrusage,    SYS_sysinfo,  SYS_exit,   SYS_exit_group};
  constexpr size_t kRules = kAllowed.size();
  std::array<sock_filter, kRules + 6> program{};
  size_t at = 0;
  const auto load = [&](size_t offset) {
    program[at++] = BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<unsigned>(offset));
  };
  load(offsetof(seccomp_data, arch));
  program[at++] = BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0);
  program[at++] = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
  load(offsetof(seccomp_data, nr));
  for (size_t rule = 0; rule < kRules; ++rule) {
    const auto to_the_end = static_cast<unsigned char>(kRules - rule);
    program[at++] = BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(kAllowed[rule]), to_the_end, 0);
  }
  program[at++] = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
  program[at++] = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  const sock_fprog filter{static_cast<unsigned short>(at), program.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

/// Memory in bytes, time in seconds of computing. No core dump: it would be of somebody's data.
inline bool limit(rlim_t memory, rlim_t seconds) {
  const auto set = [](auto resource, rlim_t most) {
    const rlimit limits{most, most};
    return ::setrlimit(resource, &limits) == 0;
  };
  return set(RLIMIT_DATA, memory) && set(RLIMIT_CPU, seconds) && set(RLIMIT_CORE, 0);
}

}  // namespace clairfs::hdf5
