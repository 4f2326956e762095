// Text about cases on which two libraries disagree.
#include "tests/numerics/differences.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <set>
#include <sstream>

namespace kiln::testing {
namespace {

constexpr size_t kMostElements = 8;

std::string Number(double v) {
  if (std::isnan(v)) return "nan";
  return v == 0 && std::signbit(v) ? "-0" : fmt::format("{:.9g}", v);
}

// Elements of one class behave alike: one of them is enough to see what a library does.
char Class(double v) {
  if (std::isnan(v)) return 'n';
  if (std::isinf(v)) return v > 0 ? 'I' : 'i';
  if (v == 0) return std::signbit(v) ? 'z' : 'Z';
  return v > 0 ? 'P' : 'p';
}

double At(const oracle::Image& image, const Dims& index) {
  Dims own = index;
  for (size_t i = 0; i < own.size(); ++i) {
    if (image.dims[i] == 1) own[i] = 0;
  }
  return image.At(own);
}

// True if an element of `output` depends on one element of `input` alone, at the same place.
bool IsElementwise(const Dims& input, const Dims& output) {
  if (input.size() != output.size()) return false;
  for (size_t i = 0; i < input.size(); ++i) {
    if (input[i] != output[i] && input[i] != 1) return false;
  }
  return true;
}

// One output of a case as both libraries wrote it.
class Differences {
 public:
  Differences(const Case& c, const CaseData& before, const CaseData& ours, const CaseData& nvidia,
              size_t output)
      : case_(c), before_(before), ours_(ours.images[output]), nvidia_(nvidia.images[output]) {}

  std::string Lines(const oracle::Dense& expected, const oracle::Tolerance& tolerance) const {
    std::string lines;
    std::set<std::string> shown;
    Dims index(expected.dims.size(), 0);
    size_t at = 0;
    do {
      const oracle::Value want = expected.values[at++];
      if (shown.size() == kMostElements) break;
      if (!Differs(want, index, tolerance)) continue;
      std::string classes;
      std::string line = Line(want, index, &classes);
      if (shown.insert(classes).second) lines += line;
    } while (oracle::Next(expected.dims, index));
    return lines;
  }

 private:
  bool Differs(oracle::Value want, const Dims& index, const oracle::Tolerance& tolerance) const {
    const oracle::Dense one{.dims = {1}, .values = {want}};
    const auto cell = [&](const oracle::Image& image) {
      auto copy = oracle::Image::Poisoned(image.dtype, {1}, {1}, 0);
      copy.Store({At(image, index)});
      return copy;
    };
    return oracle::CompareImages(one, cell(ours_), cell(nvidia_), tolerance).wrong > 0;
  }

  std::string Line(oracle::Value want, const Dims& index, std::string* classes) const {
    std::string line = fmt::format("      {}", oracle::ToText(index));
    for (const int input : case_.Inputs()) {
      const CaseTensor& tensor = case_.tensors[static_cast<size_t>(input)];
      if (!IsElementwise(tensor.dims, ours_.dims)) continue;
      const double v = At(before_.images[static_cast<size_t>(input)], index);
      line += fmt::format(" {}={}", tensor.name, Number(v));
      *classes += Class(v);
    }
    const double a = At(ours_, index), b = At(nvidia_, index);
    *classes += fmt::format("|{}{}", Class(a), Class(b));
    return line + fmt::format(" | oracle {} | ours {} | NVIDIA {}\n",
                              Number(oracle::Round(ours_.dtype, want.v)), Number(a), Number(b));
  }

  const Case& case_;
  const CaseData& before_;
  const oracle::Image& ours_;
  const oracle::Image& nvidia_;
};

constexpr std::array<const char*, static_cast<size_t>(Outcome::kCount)> kTitles = {
    "agrees",
    "agrees with ours, outside the oracle's tolerance",
    "NVIDIA refuses",
    "NVIDIA differs, ours is what the oracle expects",
    "ours differs from the oracle",
    "both refuse, as the reference says",
    "NVIDIA does not refuse what the reference forbids",
    "not run"};

}  // namespace

KnownDifferences ParseKnownDifferences(std::string_view text) {
  KnownDifferences known;
  std::istringstream lines{std::string(text)};
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const size_t begin = line.find_first_not_of(' ');
    if (begin == std::string::npos || line[begin] == '#') continue;
    const size_t end = line.find(' ', begin);
    const size_t reason = end == std::string::npos ? end : line.find_first_not_of(' ', end);
    const std::string label = line.substr(begin, end - begin);
    if (reason == std::string::npos) {
      known.errors.push_back(fmt::format("line {}: {} has no reason", number, label));
    } else if (!known.reasons.emplace(label, line.substr(reason)).second) {
      known.errors.push_back(fmt::format("line {}: {} stands twice", number, label));
    }
  }
  return known;
}

std::string DescribeDifferences(const Case& c, const CaseData& before, const CaseData& ours,
                                const CaseData& nvidia,
                                const std::map<int, oracle::Dense>& expected,
                                const oracle::Tolerance& tolerance) {
  std::string text;
  for (const auto& [tensor, dense] : expected) {
    const auto i = static_cast<size_t>(tensor);
    const auto comparison =
        oracle::CompareImages(dense, ours.images[i], nvidia.images[i], tolerance);
    if (comparison.wrong > 0) {
      text += fmt::format("    {}: {} of {} elements differ\n", c.tensors[i].name, comparison.wrong,
                          comparison.elements) +
              Differences(c, before, ours, nvidia, i).Lines(dense, tolerance);
    }
    const std::string gaps = oracle::CheckGaps(before.images[i], nvidia.images[i]);
    if (!gaps.empty()) text += fmt::format("    {}: NVIDIA: {}\n", c.tensors[i].name, gaps);
  }
  for (const int input : c.Inputs()) {
    const auto i = static_cast<size_t>(input);
    const std::string error = oracle::CheckUnchanged(before.images[i], nvidia.images[i]);
    if (!error.empty()) text += fmt::format("    {}: NVIDIA: {}\n", c.tensors[i].name, error);
  }
  return text;
}

std::string BriefRefusal(const std::string& text) {
  std::string brief = text.substr(0, text.find('\n'));
  if (const size_t json = brief.find('{'); json != std::string::npos) brief.resize(json);
  while (!brief.empty() && (brief.back() == ' ' || brief.back() == ':')) brief.pop_back();
  constexpr std::string_view kReason = "Reason: ";
  if (const size_t at = text.find(kReason); at != std::string::npos) {
    const size_t begin = at + kReason.size();
    brief += " (" + text.substr(begin, text.find('\n', begin) - begin) + ")";
  }
  return brief.substr(0, 240);
}

void ParityReport::Add(Outcome outcome, const Case& c, const std::string& detail) {
  entries_[static_cast<size_t>(outcome)].push_back(
      {.label = c.Label(), .text = c.text, .detail = detail});
}

void ParityReport::Print(const KnownDifferences& known) const {
  const auto of = [&](Outcome outcome) -> const std::vector<Entry>& {
    return entries_[static_cast<size_t>(outcome)];
  };
  const auto& differing = of(Outcome::kNvidiaDiffers);
  for (const Outcome outcome : {Outcome::kOursDiffers, Outcome::kNvidiaDiffers,
                                Outcome::kAgreesOutsideOracle, Outcome::kNvidiaAccepts}) {
    if (of(outcome).empty()) continue;
    std::printf("\n== %s\n", kTitles[static_cast<size_t>(outcome)]);
    for (const Entry& entry : of(outcome)) {
      std::printf("  %s\n    %s\n%s", entry.label.c_str(), entry.text.c_str(),
                  entry.detail.c_str());
      if (const auto it = known.reasons.find(entry.label); it != known.reasons.end())
        std::printf("    listed: %s\n", it->second.c_str());
    }
  }
  std::map<std::string, std::vector<std::string>> refusals;
  for (const Entry& entry : of(Outcome::kNvidiaRefuses))
    refusals[entry.detail].push_back(entry.label);
  if (!refusals.empty()) std::printf("\n== NVIDIA refuses, by reason\n");
  for (const auto& [reason, labels] : refusals) {
    std::printf("  %zu: %s\n", labels.size(), reason.c_str());
    for (const std::string& label : labels) std::printf("      %s\n", label.c_str());
  }
  for (const Entry& entry : of(Outcome::kAgrees)) {
    if (known.reasons.contains(entry.label))
      std::printf("\nlisted in nvidia_differs.txt, but agrees: %s\n", entry.label.c_str());
  }
  std::printf("\n== summary\n");
  size_t listed = 0;
  for (const Entry& entry : differing) listed += known.reasons.count(entry.label);
  for (size_t i = 0; i < kTitles.size(); ++i)
    std::printf("%6zu %s\n", entries_[i].size(), kTitles[i]);
  std::printf("%6zu of the differences are listed in nvidia_differs.txt\n", listed);
}

}  // namespace kiln::testing
