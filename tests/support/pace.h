// Bars of host time that hold on machines of any speed, shared or not: times are of the thread, and
// a bar is multiplied by the machine's pace.
//
//   const double pace = Pace(), begin = ThreadSeconds();
//   …
//   EXPECT_LE(ThreadSeconds() - begin, kBar * std::max(pace, Pace()));
#pragma once

namespace kiln::testing {

// Seconds of processor time that this thread has had.
double ThreadSeconds();

// The factor by which this machine is slower, now, than one whose yardstick is the usual: half of
// what it is on one that takes twice as long for a plan (0.6 ms in the median, not 0.3). At least
// 1.
double Pace();

}  // namespace kiln::testing
