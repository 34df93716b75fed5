// Reads memory after it was freed: for AddressSanitizer to find.
#include <cstdio>
#include <memory>

int main(int argc, char**) {
  auto owner = std::make_unique<int>(argc);
  const volatile int* const left = owner.get();
  owner.reset();
  const int value = *left;
  std::printf("survived: %d\n", value);
}
