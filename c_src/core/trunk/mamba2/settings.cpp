#include "core/trunk/mamba2/settings.hpp"

#include "core/trunk/stated.hpp"

namespace exphil::core::mamba2 {

Settings settings_of(const Checkpoint& file, const PolicyLoadOptions& options) {
  StatedSettings stated(file, options, "a Mamba-2 policy");
  stated.refuse_others({"mamba2", "Mamba2"});
  Settings made;
  const auto groups = stated.count({"ngroups", "n_groups"});
  const auto before = stated.boolean({"norm_before_gate"});
  if (!groups || !before) stated.by_default();
  made.groups = groups.value_or(made.groups);
  made.norm_before_gate = before.value_or(made.norm_before_gate);
  made.dt_lowest =
      stated.number_of_pair({"dt_limit_min", "dt_limit", "time_step_limit"}, 0).value_or(made.dt_lowest);
  made.dt_highest =
      stated.number_of_pair({"dt_limit_max", "dt_limit", "time_step_limit"}, 1).value_or(made.dt_highest);
  if (!(made.dt_lowest <= made.dt_highest)) {
    bad_checkpoint("dt_limit is from ", made.dt_lowest, " to ", made.dt_highest);
  }
  made.norm_epsilon = stated.norm_epsilon();
  made.mixer_norm_epsilon = stated.number({"mixer_norm_epsilon"}).value_or(made.mixer_norm_epsilon);
  stated.require_options({"ngroups", "norm_before_gate", "dt_limit_min", "dt_limit_max"});
  made.from = stated.from();
  return made;
}

}  // namespace exphil::core::mamba2
