#pragma once
// What the skeletons of persistent recurrences (recurrence_sm80.cuh, recurrence_projected_sm80.cuh)
// are told of a layer.
struct recurrence_shape {
  int steps, batch, units;
  int depth, pitch;                 // of a row of the exchange: that is used, elements in memory
  int parts, groups, first_groups;  // groups: of all sequences; first_groups: that run at a time
  int directions;
  float clip_low = 0, clip_high = 0;
};
// And of what its units are projected to.
struct recurrence_projected_shape : recurrence_shape {
  int projected_units, projected_depth, projected_pitch;
};
