// Two threads add to one number without agreeing who goes first. The thread sanitizer must say so; were
// it blind to OpenMP's threads, its silence about everything else would mean nothing.
#include <cstdio>

int main() {
  int sum = 0;
#pragma omp parallel num_threads(2) default(none) shared(sum)
  for (int i = 0; i < 1000; ++i) sum += i;
  std::printf("%d\n", sum);
  return 0;
}
