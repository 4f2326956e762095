#include "api/backend/config_json.h"

#include "api/spec/names.h"

namespace kiln::api {
namespace {

using Json = nlohmann::ordered_json;

bool IsInteger(const Json& object, const char* key) {
  return object.is_object() && object.contains(key) && object[key].is_number_integer();
}

}  // namespace

void WriteConfig(const EngineConfig& config, Json& json) {
  Json knobs = Json::array();
  for (const KnobValue& knob : config.knobs)
    knobs.push_back({{"type", knob.type}, {"value", knob.value}});
  json["engine"] = config.engine;
  json["knobs"] = std::move(knobs);
}

Result<EngineConfig> ReadConfig(const Json& json) {
  if (!IsInteger(json, "engine") || !json.contains("knobs") || !json["knobs"].is_array())
    return Status::Text(Code::kBadParam, "engine or knobs are missing");
  EngineConfig config{.engine = json["engine"].get<int64_t>(), .knobs = {}};
  for (const Json& knob : json["knobs"]) {
    if (!IsInteger(knob, "type") || !IsInteger(knob, "value") ||
        !IsLegal<cudnnBackendKnobType_t>(knob["type"].get<int>())) {
      return Status::Error(Code::kBadParam, "{} is no knob", knob.dump());
    }
    config.knobs.push_back(
        {.type = knob["type"].get<int32_t>(), .value = knob["value"].get<int64_t>()});
  }
  return config;
}

Result<Json> ParseRepresentation(const std::string& text) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_object()) return json;
  return Status::Text(Code::kBadParam, "the representation is no JSON object");
}

}  // namespace kiln::api
