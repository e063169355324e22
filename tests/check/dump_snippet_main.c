/* Calls the C function that docs/dump.md shows, which stands in snippet.c beside this file when the test compiles it. */
#include <math.h>

#include "snippet.c"

enum { B = 2, H = 3, T = 4, S = 4, D = 5 };

static float q[B * H][T][D], k[B * H][S][D], v[B * H][S][D], out[B * H][T][D];

int main(void) {
  float *inputs[] = {q[0][0], k[0][0], v[0][0]};
  for (int tensor = 0; tensor < 3; ++tensor) {
    for (int i = 0; i < B * H * T * D; ++i) {
      inputs[tensor][i] = sinf((float)(1 + i * (tensor + 2)));
    }
  }
  for (int head = 0; head < B * H; ++head) {
    for (int t = 0; t < T; ++t) {
      double sum = 0, context[D] = {0};
      for (int s = 0; s <= t; ++s) { /* causal */
        double score = 0;
        for (int d = 0; d < D; ++d) score += (double)q[head][t][d] * k[head][s][d];
        const double weight = exp(score / sqrt(D));
        sum += weight;
        for (int d = 0; d < D; ++d) context[d] += weight * v[head][s][d];
      }
      for (int d = 0; d < D; ++d) out[head][t][d] = (float)(context[d] / sum);
    }
  }
  const struct tensor tensors[] = {{"q", q[0][0], {B, H, T, D}},
                                   {"k", k[0][0], {B, H, S, D}},
                                   {"v", v[0][0], {B, H, S, D}},
                                   {"out", out[0][0], {B, H, T, D}}};
  return write_dump("dump.safetensors", tensors, 4, "{\"layout\":\"BHTD\",\"causal\":\"true\"}");
}
