package entities

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// ChangedFields lists the fields in which a definition differs from an earlier one, sorted, by their paths in a configuration:
// custom.apply.command, labels.zone. The owner and the directory are no fields of a configuration.
func (d RuntimeDefinition) ChangedFields(before RuntimeDefinition) []string {
	old, now := d.fields(before), d.fields(d)
	both := maps.Clone(old)
	maps.Copy(both, now)
	return slices.DeleteFunc(SortedKeys(both), func(path string) bool { return old[path] == now[path] })
}

// fields maps the path of each field to its value as JSON. The paths are those of d's kind.
func (d RuntimeDefinition) fields(of RuntimeDefinition) map[string]string {
	of.Name, of.Owner, of.Dir = "", "", ""
	data, err := json.Marshal(of)
	if err != nil {
		panic("entities: a definition of a runtime cannot be written: " + err.Error()) // cannot fail: every field can be marshalled
	}
	flat := map[string]string{}
	flatten(flat, "", data)
	for path, name := range d.configNames() {
		for _, own := range SortedKeys(flat) {
			if rest, ok := strings.CutPrefix(own, path); ok && (rest == "" || rest[0] == '.') {
				value := flat[own]
				delete(flat, own)
				flat[name+rest] += value // a command has its timeout at two paths
			}
		}
	}
	return flat
}

// configNames maps paths of a definition to those of a configuration where they differ.
func (d RuntimeDefinition) configNames() map[string]string {
	kind := string(d.Kind) + "."
	names := map[string]string{
		"remote": "worker", "maxApplies": "maxConcurrentApplies", "approveApplies": "approval", "noRollback": "autoRollback",
		"comparisons": "defaultComparisons", "kubernetes.ignore": "kubernetes.ignoreDifferences", "custom.mode": "custom.fetch.mode",
		"timing.pollInterval": kind + "pollInterval", "timing.steadyPollInterval": kind + "steadyPollInterval",
		"timing.gracePeriod": kind + "gracePeriod", "timing.applyTimeout": kind + "applyTimeout", "timing.fetchTimeout": kind + "fetchTimeout",
		"timing.maxAttempts": kind + "retry.maxAttempts", "timing.retryBackoff": kind + "retry.backoff", "timing.retryMax": kind + "retry.maxBackoff",
	}
	if d.Kind == RuntimeCustom {
		names["timing.applyTimeout"], names["timing.fetchTimeout"] = "custom.apply.timeout", "custom.fetch.timeout"
	}
	return names
}

// flatten adds the values of a JSON document to flat, by their paths. A list is one value.
func flatten(flat map[string]string, path string, data json.RawMessage) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(data, &fields) != nil {
		flat[path] = string(data)
		return
	}
	for name, value := range fields {
		flatten(flat, strings.TrimPrefix(path+"."+name, "."), value)
	}
}
