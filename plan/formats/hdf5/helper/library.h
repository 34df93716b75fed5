// The functions of libhdf5 that are needed, found at run time: the library need not be there, nor its headers
// when this is compiled. The types are those of all versions from 1.10 on.
#pragma once

#include <cstdint>
#include <string>

#include <dlfcn.h>

namespace clairfs::hdf5 {

using Id = int64_t;     // hid_t
using Fails = int;      // herr_t: negative on failure
using Size = uint64_t;  // hsize_t, haddr_t

/// H5E_error2_t
struct ErrorRecord {
  Id error_class, major, minor;
  unsigned line;
  const char* function;
  const char* file;
  const char* text;
};
using VisitError = Fails (*)(unsigned number, const ErrorRecord* error, void* data);

inline constexpr Id kDefault = 0;         // H5P_DEFAULT, H5E_DEFAULT
inline constexpr unsigned kReadOnly = 0;  // H5F_ACC_RDONLY
inline constexpr int kFromTheFirst = 0;   // H5E_WALK_UPWARD: the cause of the others
enum Layouts { kCompact = 0, kContiguous = 1, kChunked = 2, kVirtual = 3 };  // H5D_layout_t
enum TypeClass {
  kString = 3,
  kCompound = 6,
  kReference = 7,
  kVariableLength = 9,
  kArray = 10
};  // H5T_class_t

struct Library {
  Fails (*open)();
  Id (*open_file)(const char* name, unsigned flags, Id access);
  Id (*open_dataset)(Id file, const char* name, Id access);
  Id (*space_of)(Id dataset);
  int (*rank_of)(Id space);
  int (*sizes_of)(Id space, Size* now, Size* most);
  Id (*type_of)(Id dataset);
  int (*class_of)(Id type);
  size_t (*bytes_of)(Id type);
  int (*is_variable_string)(Id type);
  int (*members_of)(Id type);
  Id (*member_of)(Id type, unsigned number);
  Id (*base_of)(Id type);
  Id (*properties_of)(Id dataset);
  int (*layout_of)(Id properties);
  int (*chunk_of)(Id properties, int most, Size* sizes);
  int (*external_files_of)(Id properties);
  Size (*offset_of)(Id dataset);
  Fails (*read_stored)(Id dataset, Id transfer, const Size* offset, uint32_t* filters, void* to);
  Fails (*print_errors)(Id stack, void* function, void* data);
  Fails (*walk_errors)(Id stack, int direction, VisitError visit, void* data);

  /// False when the functions are not all there.
  bool load(void* handle) {
    return find(handle, open, "H5open") && find(handle, open_file, "H5Fopen") &&
           find(handle, open_dataset, "H5Dopen2") && find(handle, space_of, "H5Dget_space") &&
           find(handle, rank_of, "H5Sget_simple_extent_ndims") &&
           find(handle, sizes_of, "H5Sget_simple_extent_dims") && find(handle, type_of, "H5Dget_type") &&
           find(handle, class_of, "H5Tget_class") && find(handle, bytes_of, "H5Tget_size") &&
           find(handle, is_variable_string, "H5Tis_variable_str") &&
           find(handle, members_of, "H5Tget_nmembers") && find(handle, member_of, "H5Tget_member_type") &&
           find(handle, base_of, "H5Tget_super") && find(handle, properties_of, "H5Dget_create_plist") &&
           find(handle, layout_of, "H5Pget_layout") && find(handle, chunk_of, "H5Pget_chunk") &&
           find(handle, external_files_of, "H5Pget_external_count") &&
           find(handle, offset_of, "H5Dget_offset") &&
           // Its name from 2.0 on, where the other stands for a function with one more argument.
           (find(handle, read_stored, "H5Dread_chunk1") || find(handle, read_stored, "H5Dread_chunk")) &&
           find(handle, print_errors, "H5Eset_auto2") && find(handle, walk_errors, "H5Ewalk2");
  }

 private:
  template <class Function>
  static bool find(void* handle, Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(::dlsym(handle, name));
    return function != nullptr;
  }
};

/// libhdf5 of this machine; null if there is none.
inline void* open_library() {
  const auto open = [](int number) -> void* {
    for (const char* name : {"libhdf5_serial.so.", "libhdf5.so."}) {  // Debian's, and everybody else's
      if (void* const handle = ::dlopen((name + std::to_string(number)).c_str(), RTLD_NOW)) return handle;
    }
    return nullptr;
  };
  for (const int known : {320, 310, 200, 103}) {  // 2.x, 1.14, 1.12 and 1.10
    if (void* const handle = open(known)) return handle;
  }
  constexpr int kNewest = 400;  // distributions have numbers of their own; this takes 20 ms
  constexpr int kOldest = 100;
  for (int number = kNewest; number >= kOldest; --number) {
    if (void* const handle = open(number)) return handle;
  }
  return nullptr;
}

}  // namespace clairfs::hdf5
