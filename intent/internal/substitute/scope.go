// Package substitute replaces ${{ name }} by the value of the name for a service in a channel and a release, and converts values to the
// types of parameters. Values that only a release knows stay open.
//
// There are no functions and no nesting: a value never changes the structure that contains it.
package substitute

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/internal/strict"
)

// Value is the value of a text or a name. A symbolic value is unknown until a release sets its version and parameters; its text is then
// the substitution itself.
type Value struct {
	V        any // string, int64, float64, bool or entities.Value (a reference to a secret)
	Kind     entities.ParamType
	symbolic bool
}

// ScopedFault is a Fault during substitution. InChannel: other channels may not have it. Param is the parameter whose value has the fault;
// "": the text itself has it.
type ScopedFault struct {
	strict.Fault
	InChannel bool
	Param     string
}

// Scope contains all names of `${{ }}` for one service in one channel.
type Scope struct {
	Application, Service, Channel string
	Identity                      string // of the channel: its name for runtimes
	Version, FullVersion          string // both empty: symbolic
	Labels, Constants             map[string]string
	Addons                        map[string]entities.Addon
	Runtime                       string // and its labels; empty: the text is not for one runtime,
	AnyRuntime                    bool   // or the runtime is unknown, and references to it stay open
	RuntimeLabels                 map[string]string
	Instance                      string // its name in a fleet; empty: there is none
	Types                         map[string]entities.ParamType
	Declared                      map[string]any // values of the configuration, which may contain substitutions
	Given                         map[string]any // values of a release, without substitution
	AddressOnly                   bool           // no values that a release may change
	Fixing                        bool           // the configuration fixes parameters here
	Owner                         string         // of the parameters; the service if empty
	// NotCaptured returns the problem of a reference to a captured secret of a service. Nil: captured secrets are not available here.
	NotCaptured func(service, name string) *strict.Fault
	// Reported resolves a reference to an output of extensions: "outputs.infra.host". An empty text is unknown before they ran, and
	// stays open. Nil: outputs are not available here.
	Reported func(group, key string) (text string, fault *strict.Fault)

	Params        map[string]Value // results; the keys are the parameters used
	Pending       []string         // parameters being substituted, outermost first
	UsedConstants map[string]string
}

// CodeNotFixed marks a parameter that a release could set, in a place where no release can set it.
const CodeNotFixed = "parameter-not-fixed"

// Pattern matches a substitution; its group is the name.
var Pattern = regexp.MustCompile(`\$\{\{(.*?)\}\}`)

// Expand substitutes a text. A single substitution keeps its type; in other text it becomes text.
func (s *Scope) Expand(text string) (Value, *ScopedFault) {
	found := Pattern.FindAllStringSubmatchIndex(text, -1)
	if strings.Count(text, "${{") != len(found) {
		return Value{}, &ScopedFault{Fault: strict.Fault{Code: "bad-substitution", Message: `a "${{" has no matching "}}"`, Expected: "${{ name }}"}}
	}
	if len(found) == 1 && found[0][0] == 0 && found[0][1] == len(text) {
		return s.Lookup(strings.TrimSpace(text[found[0][2]:found[0][3]]))
	}
	result, last := Value{Kind: entities.ParamString}, 0
	var out strings.Builder
	for _, f := range found {
		name := strings.TrimSpace(text[f[2]:f[3]])
		part, t := s.Lookup(name)
		if t == nil && part.Kind == entities.ParamSecret {
			t = &ScopedFault{Fault: strict.Fault{
				Code: "secret-in-text", Message: fmt.Sprintf("the secret %q is part of a text", name),
				Expected: "the secret alone in the value of an environment variable",
			}}
		}
		if t != nil {
			return Value{}, t
		}
		out.WriteString(text[last:f[0]] + AsText(part.V))
		result.symbolic, last = result.symbolic || part.symbolic, f[1]
	}
	result.V = out.String() + text[last:]
	return result, nil
}

var substitutionName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_./-]*$`)

// Lookup returns the value of a name.
func (s *Scope) Lookup(name string) (Value, *ScopedFault) {
	group, key, dotted := strings.Cut(name, ".")
	lookup := s.group(group)
	switch {
	case !substitutionName.MatchString(name):
		return Value{}, &ScopedFault{Fault: strict.Fault{
			Code: "bad-substitution", Message: fmt.Sprintf("invalid name %q", strict.Clip(name)),
			Expected: "a dotted name alone, such as params.image; there are no functions",
		}}
	case dotted && lookup != nil:
		return lookup(name, key)
	case s.isReported(name):
		return s.reported(name, group, key)
	case s.isOfRuntime(name):
		return s.ofRuntime(name)
	}
	if text, ok := s.plain()[name]; ok {
		return Value{V: text, Kind: entities.ParamString, symbolic: s.isOfRelease(name)}, nil
	}
	names := s.names()
	return Value{}, &ScopedFault{Fault: strict.Fault{
		Code: "unknown-name", Message: fmt.Sprintf("%q is not available here", name),
		Expected: strict.OneOf(names), Suggestion: s.nearest(name),
	}}
}

// group returns the lookup function for names with a prefix and a dot; nil: the prefix is not available here.
func (s *Scope) group(prefix string) func(name, key string) (Value, *ScopedFault) {
	switch {
	case prefix == "params" && !s.AddressOnly:
		return func(_, key string) (Value, *ScopedFault) { return s.Param(key) }
	case prefix == "constants":
		return func(name, key string) (Value, *ScopedFault) {
			return s.entry(s.Constants, fmt.Sprintf("there is no constant %q", key), name, key)
		}
	case prefix == "labels":
		return func(name, key string) (Value, *ScopedFault) {
			return s.entry(s.Labels, fmt.Sprintf("there is no label %q", key), name, key)
		}
	case prefix == "captured" && s.NotCaptured != nil:
		return s.captured
	case prefix == "addons" && s.Addons != nil && !s.AddressOnly:
		return s.addon
	}
	return nil
}

// isOfRelease reports whether a name refers to a value of the release, and the release is unknown.
func (s *Scope) isOfRelease(name string) bool {
	return s.Version == "" && (name == "version" || name == "fullVersion")
}

// captured leaves a reference to a captured secret open, because it is known only after CALLBACK has run.
func (s *Scope) captured(name, key string) (Value, *ScopedFault) {
	service, secret, _ := strings.Cut(key, ".")
	if fault := s.NotCaptured(service, secret); fault != nil {
		return Value{}, &ScopedFault{InChannel: true, Fault: *fault}
	}
	return unresolved(name), nil
}

// isReported reports whether a name refers to an output of extensions, if outputs are available here.
func (s *Scope) isReported(name string) bool {
	return s.Reported != nil && !s.AddressOnly && !s.Fixing && (strings.HasPrefix(name, "outputs.") || strings.HasPrefix(name, "addresses."))
}

// reported returns an output of extensions, or leaves the name open if they have not run yet.
func (s *Scope) reported(name, group, key string) (Value, *ScopedFault) {
	text, fault := s.Reported(group, key)
	switch {
	case fault != nil:
		return Value{}, &ScopedFault{InChannel: true, Fault: *fault}
	case text == "":
		return unresolved(name), nil
	}
	return Value{V: text, Kind: entities.ParamString}, nil
}

// unresolved leaves a name open.
func unresolved(name string) Value {
	return Value{V: "${{ " + name + " }}", Kind: entities.ParamString, symbolic: true}
}

func (s *Scope) isOfRuntime(name string) bool {
	return name == "runtime" && s.AnyRuntime || strings.HasPrefix(name, runtimeLabels) && (s.AnyRuntime || s.Runtime != "")
}

// ofRuntime returns the value of a name of the runtime.
func (s *Scope) ofRuntime(name string) (Value, *ScopedFault) {
	if s.AnyRuntime {
		return unresolved(name), nil
	}
	key := strings.TrimPrefix(name, runtimeLabels)
	return s.entry(s.RuntimeLabels, fmt.Sprintf("runtime %q has no label %q", s.Runtime, key), name, key)
}

// runtimeLabels is the prefix of the labels of a runtime.
const runtimeLabels = "runtime.labels."

// DisplayName returns the display name of the text's target: the channel, or the instance in a fleet.
func (s *Scope) DisplayName() string {
	if s.Instance == "" {
		return s.Channel
	}
	return entities.InstanceID{Channel: s.Channel, Name: s.Instance}.String()
}

// plain returns the names without a dot.
func (s *Scope) plain() map[string]string {
	plain := map[string]string{"application": s.Application, "channel": s.Channel}
	if s.Service != "" {
		plain["service"] = s.Service
	}
	if s.Runtime != "" {
		plain["runtime"] = s.Runtime
	}
	switch {
	case s.AddressOnly:
	case s.Version == "":
		plain["version"], plain["fullVersion"] = "${{ version }}", "${{ fullVersion }}"
	default:
		plain["version"], plain["fullVersion"] = s.Version, s.FullVersion
	}
	return plain
}

// names lists the possible beginnings of a substitution.
func (s *Scope) names() []string {
	names := []string{"constants.*", "labels.*", "channel", "application"}
	if s.Service != "" {
		names = slices.Insert(names, 3, "service")
	}
	if !s.AddressOnly {
		names = append([]string{"version", "fullVersion", "params.*"}, names...)
	}
	if s.Runtime != "" {
		names = append(names, "runtime", runtimeLabels+"*")
	}
	if len(s.Addons) > 0 && !s.AddressOnly {
		names = append(names, "addons.*")
	}
	return names
}

// nearest suggests a full name, also if the group is missing or misspelled.
func (s *Scope) nearest(name string) string {
	all := strict.Keys(s.plain())
	groups := map[string][]string{"constants": strict.Keys(s.Constants), "labels": strict.Keys(s.Labels), "runtime.labels": strict.Keys(s.RuntimeLabels)}
	if !s.AddressOnly {
		groups["params"] = strict.Keys(s.Types)
	}
	for _, group := range strict.Keys(groups) {
		for _, key := range groups[group] {
			if key == name {
				return group + "." + key
			}
			all = append(all, group+"."+key)
		}
	}
	return strict.Nearest(name, all)
}

func (s *Scope) entry(from map[string]string, missing, name, key string) (Value, *ScopedFault) {
	text, ok := from[key]
	if !ok {
		return Value{}, &ScopedFault{InChannel: true, Fault: strict.Fault{
			Code: "unknown-name", Message: missing,
			Expected: strict.OneOf(strict.Keys(from)), Suggestion: s.nearest(name),
		}}
	}
	if strings.HasPrefix(name, "constants.") {
		if s.UsedConstants == nil {
			s.UsedConstants = map[string]string{}
		}
		s.UsedConstants[key] = text
	}
	return Value{V: text, Kind: entities.ParamString}, nil
}

// addon returns the value of a field of an addon. Names of nested fields follow each other.
func (s *Scope) addon(name, key string) (Value, *ScopedFault) {
	addonName, rest, _ := strings.Cut(key, ".")
	addon, ok := s.Addons[addonName]
	if !ok {
		return Value{}, &ScopedFault{Fault: strict.Unknown("unknown-name", fmt.Sprintf("service %q has no addon %q", s.Service, addonName), addonName, strict.Keys(s.Addons))}
	}
	var v any = addon.Value
	for at := "addons." + addonName; rest != ""; {
		var field string
		field, rest, _ = strings.Cut(rest, ".")
		fields, _ := v.(map[string]any)
		if v, ok = fields[field]; !ok {
			return Value{}, &ScopedFault{Fault: strict.Unknown("unknown-name", fmt.Sprintf("there is no %q in %s of service %q", field, at, s.Service), field, strict.Keys(fields))}
		}
		at += "." + field
	}
	for _, kind := range []entities.ParamType{entities.ParamString, entities.ParamBool, entities.ParamInt, entities.ParamFloat} {
		if fit, ok := fits(v, kind); ok {
			return Value{V: fit, Kind: kind}, nil
		}
	}
	return Value{}, &ScopedFault{Fault: strict.Fault{
		Code: "wrong-type", Message: fmt.Sprintf("%s of service %q is %s", name, s.Service, Describe(v)), Expected: "the name of a field of it that is text, a number, true or false",
	}}
}

// Param returns a parameter's value with its substitutions applied.
func (s *Scope) Param(name string) (Value, *ScopedFault) {
	kind, ok := s.Types[name]
	if !ok {
		return Value{}, &ScopedFault{Fault: strict.Unknown("unknown-parameter", fmt.Sprintf("%s has no parameter %q", cmp.Or(s.Owner, "the service"), name), name, strict.Keys(s.Types))}
	}
	if done, ok := s.Params[name]; ok {
		return done, nil
	}
	if i := slices.Index(s.Pending, name); i >= 0 {
		return Value{}, &ScopedFault{Param: slices.Min(s.Pending[i:]), Fault: strict.Fault{
			Code: "cycle", Message: "parameters refer to each other: " + strings.Join(append(slices.Clone(s.Pending[i:]), name), " → "),
		}}
	}
	s.Pending = append(s.Pending, name)
	result, t := s.evaluate(name, kind)
	s.Pending = s.Pending[:len(s.Pending)-1]
	if t != nil {
		if t.Param == "" {
			t.Param = name
		}
		return Value{}, t
	}
	if s.Params == nil {
		s.Params = map[string]Value{}
	}
	s.Params[name] = result
	return result, nil
}

func (s *Scope) evaluate(name string, kind entities.ParamType) (Value, *ScopedFault) {
	if v, ok := s.Given[name]; ok {
		return Value{V: v, Kind: kind}, nil
	}
	if KindText[kind] == "" { // already reported: its type is invalid
		return Value{V: "", Kind: kind, symbolic: true}, nil
	}
	v, ok := s.Declared[name]
	if !ok && s.Fixing {
		return Value{}, &ScopedFault{InChannel: true, Fault: strict.Fault{
			Code: CodeNotFixed, Message: fmt.Sprintf("parameter %q shapes the chart and has no value", name),
			Expected: "a default, or a value in perReleaseChannel",
		}}
	}
	if !ok && s.Version != "" {
		return Value{}, &ScopedFault{InChannel: true, Fault: strict.Fault{
			Code: "missing-parameter", Message: fmt.Sprintf("parameter %q has no value", name),
			Expected: "a value from the release",
		}}
	}
	if !ok {
		return Value{V: "${{ params." + name + " }}", Kind: kind, symbolic: true}, nil
	}
	text, isText := v.(string)
	if !isText || !config.HasSubstitution(text) {
		fit, fault := FitLiteral(v, kind)
		if fault != nil {
			return Value{}, &ScopedFault{Fault: *fault}
		}
		return Value{V: fit, Kind: kind}, nil
	}
	result, t := s.Expand(text)
	if t != nil {
		return Value{}, t
	}
	return FitResult(result, kind)
}

// Env renders the value of an environment variable, the only field that may be a secret.
func (s *Scope) Env(v entities.Value) (entities.Value, *ScopedFault) {
	if v.IsSecret() || !config.HasSubstitution(v.Literal) {
		return v, nil
	}
	result, t := s.Expand(v.Literal)
	if t != nil {
		return entities.Value{}, t
	}
	if secret, ok := result.V.(entities.Value); ok {
		return secret, nil
	}
	return entities.Value{Literal: AsText(result.V)}, nil
}

// Text renders a text that is not a secret.
func (s *Scope) Text(text string) (string, *ScopedFault) {
	if !config.HasSubstitution(text) {
		return text, nil
	}
	result, t := s.Expand(text)
	if t != nil {
		return "", t
	}
	return AsText(result.V), nil
}
