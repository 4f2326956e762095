// The line by which a user sees that it is Kiln that a program calls: at KILN_LOG=info, at the
// first call of a process, before anything is known of devices. Called by logging.cc.
#pragma once

#include <string>

namespace kiln::api {

// "Kiln is called: /opt/kiln/lib/libcudnn.so.9 as cuDNN 9.28.1, for the device of KILN_DEVICE=auto"
std::string Announcement();

}  // namespace kiln::api
