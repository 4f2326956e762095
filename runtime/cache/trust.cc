#include "runtime/cache/trust.h"

#include <grp.h>
#include <pwd.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

namespace kiln::runtime {
namespace {

constexpr uid_t kRoot = 0;
constexpr size_t kMostBytesOfARow = 1 << 20;  // of /etc/group; a group of so many is not private

std::optional<std::string> NameOfUser(uid_t user) {
  std::vector<char> buffer(4096);
  passwd row, *found = nullptr;
  if (::getpwuid_r(user, &row, buffer.data(), buffer.size(), &found) != 0 || found == nullptr)
    return std::nullopt;
  return found->pw_name;
}

// A group of the user's own has the user's name or number, and no other member.
bool LooksPrivate(gid_t group, uid_t user) {
  if (user != kRoot && group != ::getegid()) return false;
  const std::optional<std::string> name = NameOfUser(user);
  for (std::vector<char> buffer(4096); buffer.size() <= kMostBytesOfARow;) {
    struct group row, *found = nullptr;
    const int error = ::getgrgid_r(group, &row, buffer.data(), buffer.size(), &found);
    if (error == ERANGE) {
      buffer.resize(4 * buffer.size());
      continue;
    }
    if (error != 0 || found == nullptr) return !name && group == user;  // neither has a name
    if (!name || *name != found->gr_name) return false;
    for (char** member = found->gr_mem; *member != nullptr; ++member)
      if (*name != *member) return false;
    return true;
  }
  return false;
}

// Asked once for each group, since a network's directory may be behind it.
bool IsPrivateGroup(gid_t group) {
  static auto* const mutex = new std::mutex;
  static auto* const known = new std::map<std::pair<uid_t, gid_t>, bool>;
  const uid_t user = group == kRoot ? kRoot : ::geteuid();
  const std::lock_guard lock(*mutex);
  const auto [row, is_new] = known->try_emplace({user, group});
  if (is_new) row->second = LooksPrivate(group, user);
  return row->second;
}

// In the first user namespace every owner has its name.
bool IsUnnamed(uid_t user) {
  static const std::optional<uid_t> overflow = []() -> std::optional<uid_t> {
    uint64_t inside = 1, outside = 1, count = 0;
    std::ifstream("/proc/self/uid_map") >> inside >> outside >> count;
    if (inside == 0 && outside == 0 && count >= UINT32_MAX) return std::nullopt;
    uid_t id = 0;
    if (!(std::ifstream("/proc/sys/kernel/overflowuid") >> id)) return std::nullopt;
    return id;
  }();
  return overflow == user;
}

}  // namespace

Identity OwnIdentity() {
  return {.user = ::geteuid(), .is_unnamed = &IsUnnamed, .is_private = &IsPrivateGroup};
}

Status CheckTrust(const struct stat& info, const std::string& path, PathPart part,
                  const Identity& identity) {
  const bool is_on_the_way = part == PathPart::kOnTheWay;
  const bool is_ours = info.st_uid == identity.user || info.st_uid == kRoot ||
                       (is_on_the_way && identity.is_unnamed(info.st_uid));
  if (!is_ours) {
    return Status::Error(
        Code::kNotSupported,
        "{} belongs to user {}, not to us ({}); set KILN_CACHE_DIR to another folder", path,
        info.st_uid, identity.user);
  }
  if (S_ISLNK(info.st_mode)) return {};
  if (is_on_the_way && (info.st_mode & S_ISVTX) != 0) return {};
  if ((info.st_mode & S_IWOTH) != 0) {
    return Status::Error(Code::kNotSupported,
                         "{} is writable by everyone (mode {:o}): kernels in it could be anybody's",
                         path, info.st_mode & 07777);
  }
  if ((info.st_mode & S_IWGRP) != 0 && !identity.is_private(info.st_gid)) {
    return Status::Error(
        Code::kNotSupported,
        "{} is writable by group {} (mode {:o}): kernels in it could be any member's; `chmod g-w` "
        "or set KILN_CACHE_DIR to another folder",
        path, info.st_gid, info.st_mode & 07777);
  }
  return {};
}

}  // namespace kiln::runtime
