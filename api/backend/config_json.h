// An engine configuration as JSON: part of the representations of plans and of kernel caches.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "api/session/session.h"

namespace kiln::api {

// Adds "engine" and "knobs".
void WriteConfig(const EngineConfig& config, nlohmann::ordered_json& json);
Result<EngineConfig> ReadConfig(const nlohmann::ordered_json& json);

// Parses a representation that a client has set; the error says that it is no object.
Result<nlohmann::ordered_json> ParseRepresentation(const std::string& text);

}  // namespace kiln::api
