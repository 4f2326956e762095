# Prints what a test's log says was not checked, one "NAME: REASON" a line: GoogleTest's skipped cases, a script's lines
# "SKIPPED: REASON", and Python's unittest where it counts skipped methods.
/: Skipped$/ {
  reason = ""
  if ((getline line) > 0) reason = line
  next
}
/^\[  SKIPPED \] .* \([0-9]+ ms\)$/ {
  name = $0
  sub(/^\[  SKIPPED \] /, "", name)
  sub(/ \([0-9]+ ms\)$/, "", name)
  print name ": " (reason == "" ? "no reason given" : reason)
  reason = ""
  next
}
/^SKIPPED: / { print substr($0, 10) }
/^OK \(.*skipped=[0-9]+.*\)$/ { print $0 }
