// Objects that are damaged in every place that counts: each is a sentence or what can be read of
// it.
#include "cli/elf_file.h"

#include <elf.h>
#include <gtest/gtest.h>
#include <link.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace kiln::cli {
namespace {

std::string Scratch(const std::string& name) { return ::testing::TempDir() + "/" + name; }

void Write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

// A shared object by hand: header, two segments and a note's, dynamic section, strings, note.
struct Small {
  ElfW(Ehdr) header = {};
  ElfW(Phdr) segments[3] = {};
  ElfW(Dyn) dynamic[7] = {};
  char strings[64] = "\0libcudnn.so.9\0$ORIGIN/a\0libme.so\0$ORIGIN/b";
  ElfW(Nhdr) note = {.n_namesz = 5, .n_descsz = 0, .n_type = 1 };
  char owner[8] = "Kiln";

  Small() {
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_type = ET_DYN;
    header.e_machine = Machine();
    header.e_phoff = offsetof(Small, segments);
    header.e_phentsize = sizeof(ElfW(Phdr));
    header.e_phnum = 3;
    segments[0] = {.p_type = PT_LOAD, .p_vaddr = 0x1000, .p_filesz = sizeof(Small)};
    segments[1] = {
        .p_type = PT_DYNAMIC, .p_offset = offsetof(Small, dynamic), .p_filesz = sizeof dynamic};
    segments[2] = {.p_type = PT_NOTE,
                   .p_offset = offsetof(Small, note),
                   .p_filesz = sizeof note + sizeof owner};
    Set(0, DT_STRTAB, 0x1000 + offsetof(Small, strings));
    Set(1, DT_NEEDED, 1);
    Set(2, DT_RPATH, 15);
    Set(3, DT_SONAME, 25);
    Set(4, DT_FLAGS_1, DF_1_NODEFLIB);
    Set(5, DT_NULL, 0);
  }
  static ElfW(Half) Machine() {
    std::ifstream self("/proc/self/exe", std::ios::binary);
    ElfW(Ehdr) own = {};
    self.read(reinterpret_cast<char*>(&own), sizeof own);
    return own.e_machine;
  }
  void Set(int i, ElfW(Sxword) tag, ElfW(Xword) value) {
    dynamic[i].d_tag = tag;
    dynamic[i].d_un.d_val = value;
  }
  std::string Bytes() const { return {reinterpret_cast<const char*>(this), sizeof *this}; }
};

TEST(ElfFile, SaysWhatLdSoReads) {
  Small small;
  Write(Scratch("small"), small.Bytes());
  const Result<ElfFile> file = ReadElf(Scratch("small"));
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_TRUE(file->is_ours);
  EXPECT_TRUE(file->is_kiln);
  EXPECT_TRUE(file->has_no_default_folders);
  EXPECT_EQ(file->needed, std::vector<std::string>{"libcudnn.so.9"});
  EXPECT_EQ(file->soname, "libme.so");
  ASSERT_NE(file->Rpath(), nullptr);
  EXPECT_EQ(*file->Rpath(), "$ORIGIN/a");
  // Beside a DT_RUNPATH the DT_RPATH does not count.
  small.Set(5, DT_RUNPATH, 34);
  small.owner[0] = 'M';
  Write(Scratch("small"), small.Bytes());
  const Result<ElfFile> other = ReadElf(Scratch("small"));
  ASSERT_TRUE(other.ok()) << other.status().message();
  EXPECT_EQ(other->runpath, "$ORIGIN/b");
  EXPECT_EQ(other->Rpath(), nullptr);
  EXPECT_FALSE(other->is_kiln);
}

TEST(ElfFile, ThisProgram) {
  const Result<ElfFile> file = ReadElf("/proc/self/exe");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_FALSE(file->is_kiln);
  EXPECT_FALSE(file->soname);
  EXPECT_TRUE(std::ranges::find(file->needed, "libc.so.6") != file->needed.end());
}

std::string ErrorOf(const std::string& path) {
  const Result<ElfFile> file = ReadElf(path);
  return file.ok() ? "" : file.status().message();
}

TEST(ElfFile, SentencesNameWhatIsWrong) {
  const std::string path = Scratch("wrong");
  const auto wrong = [&](auto change) {
    Small small;
    change(small);
    Write(path, small.Bytes());
    return ErrorOf(path);
  };
  EXPECT_EQ(ErrorOf("/none/x"), "/none/x cannot be opened: No such file or directory");
  EXPECT_EQ(ErrorOf("/"), "/ is no regular file");
  const std::string pipe = Scratch("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(ErrorOf(pipe), pipe + " is no regular file");
  Write(path, "#!/usr/bin/python3\n");
  EXPECT_EQ(ErrorOf(path), path + " is no ELF file");
  Write(path, Small().Bytes().substr(0, 100));
  EXPECT_EQ(ErrorOf(path),
            path + " is cut off: its program headers would end at byte 232, and it has 100");
  EXPECT_EQ(wrong([](Small& s) { s.header.e_type = ET_CORE; }),
            path + " is neither a shared object nor a program (ELF type 4)");
  EXPECT_EQ(wrong([](Small& s) { s.header.e_phnum = 0xffff; }),
            path + " is damaged: it says it has 65535 program headers of 56 bytes each");
  EXPECT_EQ(wrong([](Small& s) { s.Set(0, DT_STRTAB, 0x10); }),
            path + " is damaged: its strings are at 0x10, which no segment has");
  EXPECT_EQ(
      wrong([](Small& s) { s.Set(1, DT_NEEDED, 1 << 30); }).find(path + " is cut off: a text"), 0u);
  EXPECT_EQ(wrong([](Small& s) {
              s.segments[1].p_offset = ~uint64_t{0} - 3;
            }).find(path + " is cut off: its dynamic section"),
            0u);
  Small endless;
  endless.segments[2].p_type = PT_NULL;
  std::string bytes = endless.Bytes();
  std::fill(bytes.begin() + offsetof(Small, strings), bytes.end(), 'x');
  Write(path, bytes);
  EXPECT_EQ(ErrorOf(path), path + " is damaged: a text of its dynamic section has no end");
  EXPECT_EQ(wrong([](Small& s) { s.header.e_machine ^= 0x55; }), "");
  EXPECT_FALSE(ReadElf(path)->is_ours);
  EXPECT_EQ(wrong([](Small& s) { s.header.e_ident[EI_DATA] ^= 3; }),
            path + " has its bytes in the other order than this machine");
}

// Each byte of a small object by itself, and each length: the answer is a file or a sentence that
// begins with the path.
TEST(ElfFile, NoDamageIsMoreThanASentence) {
  const std::string path = Scratch("damaged"), whole = Small().Bytes();
  size_t sentences = 0, files = 0;
  const auto read = [&](const std::string& bytes) {
    Write(path, bytes);
    const std::string error = ErrorOf(path);
    error.empty() ? ++files : ++sentences;
    EXPECT_TRUE(error.empty() || error.starts_with(path)) << error;
  };
  for (size_t at = 0; at < whole.size(); ++at) {
    read(whole.substr(0, at));
    for (const int byte : {0x00, 0x01, 0x7f, 0x80, 0xff}) {
      std::string bytes = whole;
      bytes[at] = static_cast<char>(byte);
      read(bytes);
    }
  }
  EXPECT_GT(sentences, whole.size());
  EXPECT_GT(files, whole.size());
}

}  // namespace
}  // namespace kiln::cli
