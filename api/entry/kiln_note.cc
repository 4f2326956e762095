// The note by which a file is known as Kiln's: owner "Kiln", type 1, without a description. `kiln
// doctor` (cli/elf_file.cc) reads it, since names and exported symbols are NVIDIA's as well.
__asm__(
    ".pushsection .note.kiln, \"a\", %note\n"
    ".balign 4\n"
    ".long 5, 0, 1\n"
    ".asciz \"Kiln\"\n"
    ".balign 4\n"
    ".popsection\n");
