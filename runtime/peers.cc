#include "runtime/peers.h"

#include "ir/base/env.h"
#include "ir/peers.h"

namespace kiln::runtime {
namespace {

constexpr int64_t kNanosecondsOfMillisecond = 1'000'000;

int64_t LimitMilliseconds() { return EnvInt(Env::kPeerTimeoutMs); }

}  // namespace

Result<int> RankOf(const Device& device, std::span<void* const> buffers) {
  int rank = -1;
  for (size_t r = 0; r < buffers.size(); ++r) {
    if (device.OwnerOf(buffers[r]) != Owner::kThisDevice) continue;
    if (rank >= 0)
      return Status::Error(Code::kBadParam,
                           "the peers' buffers {} and {} both lie on {}: which one is this rank's "
                           "is not known",
                           rank, r, device.target().name);
    rank = static_cast<int>(r);
  }
  if (rank >= 0) return rank;
  return Status::Error(Code::kBadParam,
                       "none of the {} peers' buffers lies on {}: one is this rank's own",
                       buffers.size(), device.target().name);
}

int64_t PeerLimitNanoseconds() { return LimitMilliseconds() * kNanosecondsOfMillisecond; }

Status StatusOfFault(int32_t fault) {
  if (fault == 0) return {};
  if (fault == kSignalFault)
    return Status::Error(Code::kExecutionFailed,
                         "a signal's flag did not get its value within {} ms "
                         "(KILN_PEER_TIMEOUT_MS)",
                         LimitMilliseconds());
  return Status::Error(Code::kExecutionFailed,
                       "the sums of rank {} did not come within {} ms (KILN_PEER_TIMEOUT_MS); "
                       "buffers of peers are zero before their first use",
                       fault - kFirstRankFault, LimitMilliseconds());
}

}  // namespace kiln::runtime
