#include <cstdlib>

extern "C" int cuDeviceGetCount(int* count) {
  *count = 1;
  const char* result = std::getenv("FAKE_CUDA_RESULT");
  return result ? std::atoi(result) : 0;
}
