// Adds beyond what an int holds: for UBSan to find.
#include <climits>
#include <cstdio>

int main(int argc, char**) {
  volatile int most = INT_MAX;
  const int sum = most + argc;
  std::printf("survived: %d\n", sum);
}
