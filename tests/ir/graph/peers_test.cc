// Sums over GPUs, flags and batch norm with peers in the interpreter, against plain loops over the
// whole batch; and what is refused, in words.
#include "ir/graph/peers.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "ir/base/check.h"
#include "ir/graph/eval.h"
#include "ir/peers.h"
#include "tests/support/oracle/peers_norm.h"

namespace kiln::graph {
namespace {

Graph Parsed(const std::string& text) {
  Result<Graph> g = Parse(text);
  CHECK(g.ok(), "{}", g.status().message());
  return *std::move(g);
}

// Publishes numbers, from `first` on, as a rank's call.
void Publish(std::vector<double>& buffer, size_t first, const std::vector<double>& numbers,
             uint32_t call) {
  for (size_t i = 0; i < numbers.size(); ++i) {
    const size_t word = 2 * (first + i) + call % 2;
    buffer[2 * word] = numbers[i];
    buffer[2 * word + 1] = std::bit_cast<float>(call);
  }
}

TensorValues Evaluated(const Graph& g, TensorValues values) {
  const Status status = Evaluate(g, values);
  EXPECT_TRUE(status.ok()) << status.message();
  return values;
}

constexpr const char* kReduce = R"(graph g {
  tensor %x uid=1 f32 [3]
  tensor %s uid=2 f32 [1,2]
  tensor %p0 uid=3 f32 [24]
  tensor %p1 uid=4 f32 [24]
  tensor %p2 uid=5 f32 [24]
  tensor %y uid=6 f32 [3]
  tensor %t uid=7 f32 [1,2]
  %y, %t = peer_reduce(%x, %s, %p0, %p1, %p2) compute=f32 first=1
})";

// Calls up to 0xffffffff and beyond: own words say which one this is.
TEST(PeerReduce, TakesTheWordsOfItsCall) {
  const Graph g = Parsed(kReduce);
  for (const uint32_t call : {1u, 2u, 3u, 1000u, 0x7fffffffu, 0x80000000u}) {
    SCOPED_TRACE(call);
    std::vector<double> own(24, 0), a(24, 0), b(24, 0);
    for (uint32_t done = call > 2 ? call - 2 : 1; done < call; ++done)
      Publish(own, 1, {9, 9, 9, 9, 9}, done);
    for (const uint32_t at : {call - 1, call}) {
      if (at == 0) continue;
      const double more = at == call ? 0 : 100;
      Publish(a, 1, {10 + more, 20, 30, 40, 50}, at);
      Publish(b, 1, {100 + more, 200, 300, 400, 500}, at);
    }
    const TensorValues got = Evaluated(g, {{0, {1, 2, 3}}, {1, {4, 5}}, {2, own}, {3, a}, {4, b}});
    EXPECT_EQ(got.at(5), (std::vector<double>{111, 222, 333}));
    EXPECT_EQ(got.at(6), (std::vector<double>{444, 555}));
  }
}

TEST(PeerReduce, WhatIsMissingIsNaN) {
  std::vector<double> own(24, 0), a(24, 0), b(24, 0);
  Publish(a, 1, {10, 20, 30, 40, 50}, 1);
  Publish(b, 1, {10, 20, 30}, 1);
  const TensorValues got =
      Evaluated(Parsed(kReduce), {{0, {1, 2, 3}}, {1, {4, 5}}, {2, own}, {3, a}, {4, b}});
  EXPECT_EQ(got.at(5), (std::vector<double>{21, 42, 63}));
  for (const double v : got.at(6)) EXPECT_TRUE(std::isnan(v));
}

TEST(PeerReduce, OneRankHasItsOwnNumbers) {
  const Graph g = Parsed(
      "graph g { tensor %x uid=1 f32 [0] tensor %s uid=2 f32 [2] tensor %p uid=3 f32 [8] "
      "tensor %y uid=4 f32 [0] tensor %t uid=5 f32 [2] %y, %t = peer_reduce(%x, %s, %p) "
      "compute=f32 }");
  const TensorValues got =
      Evaluated(g, {{0, {}}, {1, {3, -0.0}}, {2, std::vector<double>(8, NAN)}});
  EXPECT_TRUE(got.at(3).empty());
  EXPECT_EQ(got.at(4), (std::vector<double>{3, 0}));
}

TEST(Signals, PassWhatTheyAreGiven) {
  const Graph set = Parsed(
      "graph g { tensor %x uid=1 f16 [3] tensor %f uid=2 i64 [1] tensor %y uid=3 f16 [3] "
      "%f, %y = signal_set(%x) compute=f32 value=-7 }");
  const TensorValues was_set = Evaluated(set, {{0, {1, 2, NAN}}});
  EXPECT_EQ(was_set.at(1), std::vector<double>{-7});
  EXPECT_EQ(was_set.at(2)[1], 2);
  EXPECT_TRUE(std::isnan(was_set.at(2)[2]));
  const Graph wait = Parsed(
      "graph g { tensor %x uid=1 i32 [2] tensor %f uid=2 i32 [1] tensor %y uid=3 i32 [2] "
      "%y = signal_wait(%x, %f) compute=f32 value=5 }");
  EXPECT_EQ(Evaluated(wait, {{0, {1, 2}}, {1, {5}}}).at(2), (std::vector<double>{1, 2}));
  EXPECT_EQ(Evaluated(wait, {{0, {1, 2}}, {1, {4}}}).at(2), (std::vector<double>{0, 0}));
}

// ---- batch norm

const std::string kNorm = R"(graph g {
  tensor %x uid=1 f32 [2,3,4]
  tensor %scale uid=2 f32 [1,3,1]
  tensor %bias uid=3 f32 [1,3,1]
  tensor %eps uid=4 f32 [1,1,1] by_value value=0.125
  tensor %f uid=5 f32 [1,1,1] by_value value=0.5
  tensor %rm uid=6 f32 [1,3,1]
  tensor %rv uid=7 f32 [1,3,1]
  tensor %p0 uid=8 f32 [2,12,1]
  tensor %p1 uid=9 f32 [2,12,1]
  tensor %y uid=10 f64 [2,3,4]
  tensor %m uid=11 f64 [1,3,1]
  tensor %i uid=12 f64 [1,3,1]
  tensor %nm uid=13 f64 [1,3,1]
  tensor %nv uid=14 f64 [1,3,1]
  %y, %m, %i, %nm, %nv = norm_forward(%x, _, _, %scale, %bias, %eps, %f, %rm, %rv, %p0, %p1) compute=f32 mode=batch
})";
constexpr oracle::NormExtents kExtents = {.batch = 2, .channels = 3, .places = 4};

std::vector<double> Steps(double begin, double step) {
  std::vector<double> values(kExtents.size());
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = begin + step * static_cast<double>(i * 7 % 11);
  return values;
}

void ExpectNear(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], want[i], 1e-9 * (1 + std::abs(want[i]))) << "at " << i;
}

TEST(NormOverPeers, IsThatOfTheWholeBatch) {
  const std::vector<std::vector<double>> x = {Steps(-3, 0.5), Steps(40, 0.25)},
                                         dy = {Steps(1, -0.5), Steps(-2, 0.25)};
  const std::vector<double> scale = {1, -2, 3}, bias = {0, 1, 2}, rm = {1, 2, 3}, rv = {4, 5, 6};
  const oracle::WholeNorm whole = oracle::ForwardOf(
      kExtents, x, scale, bias, {.epsilon = 0.125, .factor = 0.5, .mean = rm, .variance = rv});
  std::vector<double> peer(24, 0), zero(24, 0);
  Publish(peer, 0, whole.of_rank[1].mean, 1);
  Publish(peer, 3, whole.of_rank[1].from_all, 1);
  const TensorValues got = Evaluated(
      Parsed(kNorm), {{0, x[0]}, {1, scale}, {2, bias}, {5, rm}, {6, rv}, {7, zero}, {8, peer}});
  ExpectNear(got.at(9), whole.y[0]);
  ExpectNear(got.at(10), whole.mean);
  ExpectNear(got.at(11), whole.inv);
  ExpectNear(got.at(12), whole.next_mean);
  ExpectNear(got.at(13), whole.next_variance);

  const oracle::WholeGradient gradient = oracle::BackwardOf(kExtents, x, dy, scale, whole);
  const Graph backward = Parsed(R"(graph g {
    tensor %x uid=1 f32 [2,3,4]
    tensor %dy uid=2 f32 [2,3,4]
    tensor %m uid=3 f64 [1,3,1]
    tensor %i uid=4 f64 [1,3,1]
    tensor %scale uid=5 f32 [1,3,1]
    tensor %p0 uid=6 f32 [2,12,1]
    tensor %p1 uid=7 f32 [2,12,1]
    tensor %dx uid=8 f64 [2,3,4]
    tensor %dscale uid=9 f64 [1,3,1]
    tensor %dbias uid=10 f64 [1,3,1]
    %dx, %dscale, %dbias = norm_backward(%x, %dy, %m, %i, %scale, _, %p0, %p1) compute=f32 mode=batch
  })");
  peer = zero;
  Publish(peer, 0, gradient.dbias_of_rank[1], 1);
  Publish(peer, 3, gradient.dscale_of_rank[1], 1);
  const TensorValues back = Evaluated(
      backward,
      {{0, x[0]}, {1, dy[0]}, {2, whole.mean}, {3, whole.inv}, {4, scale}, {5, zero}, {6, peer}});
  ExpectNear(back.at(7), gradient.dx[0]);
  ExpectNear(back.at(8), gradient.dscale);
  ExpectNear(back.at(9), gradient.dbias);
}

// ---- refusals

struct Refusal {
  std::string from, to, sentence;
};

void ExpectRefused(const std::string& text, const Refusal& r) {
  std::string changed = text;
  const size_t at = changed.find(r.from);
  ASSERT_NE(at, std::string::npos) << r.from;
  changed.replace(at, r.from.size(), r.to);
  const Result<Graph> g = Parse(changed);
  const std::string said = g.ok() ? Verify(*g).message() : g.status().message();
  EXPECT_NE(said.find(r.sentence), std::string::npos) << said;
}

TEST(PeerReduce, Refuses) {
  for (const Refusal& r : {
           Refusal{"compute=f32", "compute=f64", "peers add up f32, not f64"},
           Refusal{"%x uid=1 f32", "%x uid=1 f16", "x %x is f16; peers add up f32"},
           Refusal{"%y uid=6 f32 [3]", "%y uid=6 f32 [4]", "the sum of as many numbers"},
           Refusal{"%y, %t =", "%y =", "second and its sum are both there or neither is"},
           Refusal{"first=1", "first=-1", "its numbers begin with -1"},
           Refusal{"first=1", "first=2",
                   "the peers' buffer %p0 24 has 96 bytes; 7 numbers need 112"},
           Refusal{"first=1", "first=281474976710657", "its numbers begin with 281474976710657"},
           Refusal{"%p1 uid=4 f32", "%p1 uid=4 f16", "the peers' buffer %p1 is f16, not f32"},
           Refusal{"%p1 uid=4 f32 [24]", "%p1 uid=4 f32 [12,2] strides=[3,1]",
                   "the peers' buffer %p1 12x2 has gaps"},
           Refusal{"%p2 uid=5 f32 [24]", "%p2 uid=5 f32 [24] align=4",
                   "the peers' buffer %p2 is aligned to 4 bytes; 8 are needed"},
           Refusal{"%p1, %p2", "%p1, %p1", "the peers' buffer %p1 is that of two ranks"},
           Refusal{"%p1, %p2", "%p1, _", "the buffer of rank 2 is absent"},
       })
    ExpectRefused(kReduce, r);
}

TEST(PeerReduce, RefusesMoreRanksThanAKernelHasParametersFor) {
  std::string tensors, operands;
  for (int r = 0; r <= kMostPeers; ++r) {
    tensors += fmt::format("tensor %p{} uid={} f32 [48] ", r, 100 + r);
    operands += fmt::format(", %p{}", r);
  }
  const std::string text = "graph g { tensor %x uid=1 f32 [2] " + tensors +
                           "tensor %y uid=2 f32 [2] %y = peer_reduce(%x, _" + operands +
                           ") compute=f32 }";
  ExpectRefused(text, {"f32 [2]", "f32 [1]", "has 19 inputs, must have 3..18"});
  const std::string norm = fmt::format(
      "graph g {{ tensor %x uid=1 f32 [2,1,2] tensor %e uid=2 f32 [1,1,1] by_value {}"
      "tensor %y uid=3 f32 [2,1,2] %y = norm_forward(%x, _, _, _, _, %e, _, _, _{}) compute=f32 "
      "mode=batch }}",
      tensors, operands);
  ExpectRefused(norm, {"%e uid=2", "%e uid=4", "17 buffers of peers; 16 are possible"});
}

TEST(NormOverPeers, Refuses) {
  for (const Refusal& r : {
           Refusal{"compute=f32", "compute=f64", "peers add up f32, not f64"},
           Refusal{"%p1 uid=9 f32 [2,12,1]", "%p1 uid=9 f32 [2,11,1]",
                   "the peers' buffer %p1 2x11x1 has 88 bytes; 6 numbers need 96"},
           Refusal{"%p1 uid=9 f32", "%p1 uid=9 i32", "the peers' buffer %p1 is i32, not f32"},
       })
    ExpectRefused(kNorm, r);
  EXPECT_TRUE(Verify(Parsed(kNorm)).ok());
}

TEST(Signals, Refuse) {
  const std::string set =
      "graph g { tensor %x uid=1 f16 [3] tensor %f uid=2 i32 [1] tensor %y uid=3 f16 [3] "
      "%f, %y = signal_set(%x) compute=f32 value=7 }";
  for (const Refusal& r : {
           Refusal{"%f uid=2 i32", "%f uid=2 f32", "the flag %f is f32, not i32 or i64"},
           Refusal{"i32 [1]", "i32 [2]", "the flag %f 2 is no single number in memory"},
           Refusal{"value=7", "value=3000000000",
                   "the value 3000000000 does not fit the i32 flag %f"},
           Refusal{"%y uid=3 f16 [3]", "%y uid=3 f32 [3]", "f16 %x 3 is passed on as f32 %y 3"},
           Refusal{"signal_set(%x)", "signal_set()", "y is there without x"},
       })
    ExpectRefused(set, r);
  ExpectRefused(
      "graph g { tensor %a uid=1 f32 [3] tensor %x f32 [3] virtual tensor %f uid=2 i32 [1] "
      "tensor %y uid=3 f32 [3] %x = pointwise(%a) compute=f32 mode=neg "
      "%y = signal_wait(%x, %f) compute=f32 value=7 }",
      {"value=7", "value=8", "nobody else writes %x 3: there is nothing to wait for"});
}

}  // namespace
}  // namespace kiln::graph
