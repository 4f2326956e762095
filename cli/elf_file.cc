#include "cli/elf_file.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <string_view>

namespace kiln::cli {
namespace {

constexpr size_t kMostHeaders = 4096, kMostEntries = 65536;
constexpr size_t kMostText = 1 << 20, kMostNotes = 1 << 20;

#if defined(__x86_64__)
constexpr int kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr int kMachine = EM_AARCH64;
#else
constexpr int kMachine = EM_NONE;
#endif

class Reader {
 public:
  explicit Reader(const std::string& path)
      : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)), error_(errno) {}
  ~Reader() {
    if (fd_ >= 0) ::close(fd_);
  }
  Reader(const Reader&) = delete;

  Result<ElfFile> Read();

 private:
  struct Dynamic {
    uint64_t strings = 0;  // an address
    std::vector<uint64_t> needed;
    std::optional<uint64_t> soname, rpath, runpath;
  };

  Status Open();
  Result<bool> ReadHeader();
  Status ReadSegments();
  Status ReadDynamic(const ElfW(Phdr) & segment);
  Status ReadText(uint64_t strings, uint64_t at, std::string& text);
  Status ReadNotes(const ElfW(Phdr) & segment);
  Status ReadAt(uint64_t offset, void* to, size_t size, const char* what);
  Result<uint64_t> OffsetOf(uint64_t address);

  template <class... A>
  Status Damage(fmt::format_string<A...> format, A&&... args) {
    return Status::Error(Code::kBadParam, "{} {}", path_,
                         fmt::format(format, std::forward<A>(args)...));
  }

  const std::string& path_;
  const int fd_, error_;
  uint64_t size_ = 0;
  ElfW(Ehdr) header_ = {};
  std::vector<ElfW(Phdr)> segments_;
  ElfFile file_;
};

Result<ElfFile> Reader::Read() {
  RETURN_IF_ERROR(Open());
  ASSIGN_OR_RETURN(file_.is_ours, ReadHeader());
  if (!file_.is_ours) return file_;
  RETURN_IF_ERROR(ReadSegments());
  for (const ElfW(Phdr) & segment : segments_) {
    if (segment.p_type == PT_DYNAMIC) RETURN_IF_ERROR(ReadDynamic(segment));
    if (segment.p_type == PT_NOTE) RETURN_IF_ERROR(ReadNotes(segment));
  }
  return file_;
}

Status Reader::Open() {
  if (fd_ < 0) return Damage("cannot be opened: {}", std::strerror(error_));
  struct stat about = {};
  if (::fstat(fd_, &about) != 0 || !S_ISREG(about.st_mode)) return Damage("is no regular file");
  size_ = static_cast<uint64_t>(about.st_size);
  return {};
}

Status Reader::ReadAt(uint64_t offset, void* to, size_t size, const char* what) {
  if (offset > size_ || size > size_ - offset)
    return Damage(
        "is cut off: its {} would end at byte {}, and it has {}", what,
        static_cast<unsigned __int128>(offset) + size > UINT64_MAX ? UINT64_MAX : offset + size,
        size_);
  for (size_t done = 0; done < size;) {
    const ssize_t n =
        ::pread(fd_, static_cast<char*>(to) + done, size - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Damage("cannot be read: {}", std::strerror(errno));
    if (n == 0) return Damage("became shorter while it was read");
    done += static_cast<size_t>(n);
  }
  return {};
}

// True if the file is an object of this machine's kind.
Result<bool> Reader::ReadHeader() {
  unsigned char ident[EI_NIDENT];
  RETURN_IF_ERROR(ReadAt(0, ident, sizeof ident, "ELF identification"));
  if (std::memcmp(ident, ELFMAG, SELFMAG) != 0) return Damage("is no ELF file");
  if (ident[EI_CLASS] != ELFCLASS64) return false;
  constexpr bool kLittle = std::endian::native == std::endian::little;
  if (ident[EI_DATA] != (kLittle ? ELFDATA2LSB : ELFDATA2MSB))
    return Damage("has its bytes in the other order than this machine");
  RETURN_IF_ERROR(ReadAt(0, &header_, sizeof header_, "ELF header"));
  if (header_.e_machine != kMachine) return false;
  if (header_.e_type != ET_DYN && header_.e_type != ET_EXEC)
    return Damage("is neither a shared object nor a program (ELF type {})", header_.e_type);
  return true;
}

Status Reader::ReadSegments() {
  if (header_.e_phnum == 0 || header_.e_phnum > kMostHeaders ||
      header_.e_phentsize != sizeof(ElfW(Phdr)))
    return Damage("is damaged: it says it has {} program headers of {} bytes each", header_.e_phnum,
                  header_.e_phentsize);
  segments_.resize(header_.e_phnum);
  return ReadAt(header_.e_phoff, segments_.data(), segments_.size() * sizeof(ElfW(Phdr)),
                "program headers");
}

Result<uint64_t> Reader::OffsetOf(uint64_t address) {
  for (const ElfW(Phdr) & segment : segments_)
    if (segment.p_type == PT_LOAD && address >= segment.p_vaddr &&
        address - segment.p_vaddr < segment.p_filesz)
      return segment.p_offset + (address - segment.p_vaddr);
  return Damage("is damaged: its strings are at {:#x}, which no segment has", address);
}

Status Reader::ReadDynamic(const ElfW(Phdr) & segment) {
  const size_t count = std::min<uint64_t>(segment.p_filesz / sizeof(ElfW(Dyn)), kMostEntries);
  std::vector<ElfW(Dyn)> entries(count);
  RETURN_IF_ERROR(
      ReadAt(segment.p_offset, entries.data(), count * sizeof(ElfW(Dyn)), "dynamic section"));
  Dynamic dynamic;
  for (const ElfW(Dyn) & entry : entries) {
    const uint64_t value = entry.d_un.d_val;
    if (entry.d_tag == DT_NULL) break;
    if (entry.d_tag == DT_STRTAB) dynamic.strings = value;
    if (entry.d_tag == DT_NEEDED) dynamic.needed.push_back(value);
    if (entry.d_tag == DT_SONAME) dynamic.soname = value;
    if (entry.d_tag == DT_RPATH) dynamic.rpath = value;
    if (entry.d_tag == DT_RUNPATH) dynamic.runpath = value;
    if (entry.d_tag == DT_FLAGS_1) file_.has_no_default_folders = (value & DF_1_NODEFLIB) != 0;
  }
  const auto read = [&](const std::optional<uint64_t>& at, std::optional<std::string>& to) {
    return at ? ReadText(dynamic.strings, *at, to.emplace()) : Status();
  };
  RETURN_IF_ERROR(read(dynamic.soname, file_.soname));
  RETURN_IF_ERROR(read(dynamic.rpath, file_.rpath));
  RETURN_IF_ERROR(read(dynamic.runpath, file_.runpath));
  for (const uint64_t at : dynamic.needed)
    RETURN_IF_ERROR(ReadText(dynamic.strings, at, file_.needed.emplace_back()));
  return {};
}

// A text of the table of strings, up to its NUL.
Status Reader::ReadText(uint64_t strings, uint64_t at, std::string& text) {
  ASSIGN_OR_RETURN(uint64_t offset, OffsetOf(strings));
  if (at > size_ || offset > size_ - at)
    return Damage(
        "is cut off: a text of its dynamic section would begin at byte {} behind its "
        "strings, and it has {} bytes",
        at, size_);
  offset += at;
  while (text.size() < kMostText) {
    char piece[256];
    const size_t size = std::min<uint64_t>(sizeof piece, size_ - offset);
    if (size == 0) break;
    RETURN_IF_ERROR(ReadAt(offset, piece, size, "strings"));
    const size_t length = ::strnlen(piece, size);
    text.append(piece, length);
    if (length < size) return {};
    offset += size;
  }
  return Damage("is damaged: a text of its dynamic section has no end");
}

Status Reader::ReadNotes(const ElfW(Phdr) & segment) {
  std::vector<char> notes(std::min<uint64_t>(segment.p_filesz, kMostNotes));
  RETURN_IF_ERROR(ReadAt(segment.p_offset, notes.data(), notes.size(), "notes"));
  constexpr std::string_view kOwner("Kiln", 5);  // with its NUL
  const auto align = [](uint64_t n) { return (n + 3) & ~uint64_t{3}; };
  std::string_view rest(notes.data(), notes.size());
  while (rest.size() >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) note;
    std::memcpy(&note, rest.data(), sizeof note);
    const uint64_t total = sizeof note + align(note.n_namesz) + align(note.n_descsz);
    if (total > rest.size()) break;  // notes of another alignment; ours are in order
    if (rest.substr(sizeof note, note.n_namesz) == kOwner) file_.is_kiln = true;
    rest.remove_prefix(total);
  }
  return {};
}

}  // namespace

Result<ElfFile> ReadElf(const std::string& path) { return Reader(path).Read(); }

}  // namespace kiln::cli
