package intent

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/internal/strict"
)

// value is what a text or a name stands for. A symbolic one is not known before a release names
// its version and parameters; its text is then that of the substitution itself.
type value struct {
	v        any // string, int64, float64, bool or entities.Value (a reference to a secret)
	kind     entities.ParamType
	symbolic bool
}

// trouble is a Fault met while substituting. inChannel says that other channels may not have it;
// param names the parameter whose own value has it, "" for the text that was asked about.
type trouble struct {
	Fault
	inChannel bool
	param     string
}

// scope is everything that `${{ }}` may name for one service in one channel.
type scope struct {
	application, service, channel string
	version, fullVersion          string // both empty: symbolic
	labels, constants             map[string]string
	types                         map[string]entities.ParamType
	declared                      map[string]any // values of the configuration, which may hold substitutions
	given                         map[string]any // values of a release: taken as they are
	addressOnly                   bool           // nothing that a release may change
	fixing                        bool           // parameters are fixed by the configuration here
	owner                         string         // of the parameters; the service when empty

	params        map[string]value // results, which are also the parameters used
	pending       []string         // parameters being substituted, outermost first
	usedConstants map[string]string
}

// codeNotFixed marks a parameter that a release could give, where none can.
const codeNotFixed = "parameter-not-fixed"

var substitution = regexp.MustCompile(`\$\{\{(.*?)\}\}`)

// expand substitutes a text. A substitution alone keeps its type; among other text it becomes text.
func (s *scope) expand(text string) (value, *trouble) {
	found := substitution.FindAllStringSubmatchIndex(text, -1)
	if strings.Count(text, "${{") != len(found) {
		return value{}, &trouble{Fault: Fault{Code: "bad-substitution", Message: `a "${{" has no "}}" of its own`, Expected: "${{ name }}"}}
	}
	if len(found) == 1 && found[0][0] == 0 && found[0][1] == len(text) {
		return s.lookup(strings.TrimSpace(text[found[0][2]:found[0][3]]))
	}
	result, last := value{kind: entities.ParamString}, 0
	var out strings.Builder
	for _, f := range found {
		name := strings.TrimSpace(text[f[2]:f[3]])
		part, t := s.lookup(name)
		if t == nil && part.kind == entities.ParamSecret {
			t = &trouble{Fault: Fault{
				Code: "secret-in-text", Message: fmt.Sprintf("the secret %q stands among other text", name),
				Expected: "it alone in the value of an environment variable",
			}}
		}
		if t != nil {
			return value{}, t
		}
		out.WriteString(text[last:f[0]] + asText(part.v))
		result.symbolic, last = result.symbolic || part.symbolic, f[1]
	}
	result.v = out.String() + text[last:]
	return result, nil
}

var substitutionName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_./-]*$`)

// lookup returns what a name stands for.
func (s *scope) lookup(name string) (value, *trouble) {
	group, key, dotted := strings.Cut(name, ".")
	switch {
	case !substitutionName.MatchString(name):
		return value{}, &trouble{Fault: Fault{
			Code: "bad-substitution", Message: fmt.Sprintf("%q is no name", strict.Clip(name)),
			Expected: "a dotted name alone, such as params.image; there are no functions",
		}}
	case dotted && group == "params" && !s.addressOnly:
		return s.param(key)
	case dotted && group == "constants":
		return s.entry(s.constants, "constant", name, key)
	case dotted && group == "labels":
		return s.entry(s.labels, "label", name, key)
	}
	if text, ok := s.plain()[name]; ok {
		symbolic := s.version == "" && (name == "version" || name == "fullVersion")
		return value{v: text, kind: entities.ParamString, symbolic: symbolic}, nil
	}
	names := s.names()
	return value{}, &trouble{Fault: Fault{
		Code: "unknown-name", Message: fmt.Sprintf("nothing is called %q here", name),
		Expected: strict.OneOf(names), Suggestion: s.nearest(name),
	}}
}

// plain holds the names without a dot.
func (s *scope) plain() map[string]string {
	plain := map[string]string{"application": s.application, "service": s.service, "channel": s.channel}
	switch {
	case s.addressOnly:
	case s.version == "":
		plain["version"], plain["fullVersion"] = "${{ version }}", "${{ fullVersion }}"
	default:
		plain["version"], plain["fullVersion"] = s.version, s.fullVersion
	}
	return plain
}

// names lists what a substitution may begin with.
func (s *scope) names() []string {
	if s.addressOnly {
		return []string{"constants.*", "labels.*", "channel", "service", "application"}
	}
	return []string{"version", "fullVersion", "params.*", "constants.*", "labels.*", "channel", "service", "application"}
}

// nearest suggests a full name, also one whose group was forgotten or misspelled.
func (s *scope) nearest(name string) string {
	var all []string
	for key := range s.plain() {
		all = append(all, key)
	}
	groups := map[string][]string{"constants": strict.Keys(s.constants), "labels": strict.Keys(s.labels)}
	if !s.addressOnly {
		groups["params"] = strict.Keys(s.types)
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

func (s *scope) entry(from map[string]string, what, name, key string) (value, *trouble) {
	text, ok := from[key]
	if !ok {
		return value{}, &trouble{inChannel: true, Fault: Fault{
			Code: "unknown-name", Message: fmt.Sprintf("there is no %s %q", what, key),
			Expected: strict.OneOf(strict.Keys(from)), Suggestion: s.nearest(name),
		}}
	}
	if what == "constant" {
		if s.usedConstants == nil {
			s.usedConstants = map[string]string{}
		}
		s.usedConstants[key] = text
	}
	return value{v: text, kind: entities.ParamString}, nil
}

// param returns a parameter's value, its own substitutions done.
func (s *scope) param(name string) (value, *trouble) {
	kind, ok := s.types[name]
	if !ok {
		return value{}, &trouble{Fault: Fault{
			Code: "unknown-parameter", Message: fmt.Sprintf("%s has no parameter %q", cmp.Or(s.owner, "the service"), name),
			Expected: strict.OneOf(strict.Keys(s.types)), Suggestion: strict.Nearest(name, strict.Keys(s.types)),
		}}
	}
	if done, ok := s.params[name]; ok {
		return done, nil
	}
	if i := slices.Index(s.pending, name); i >= 0 {
		return value{}, &trouble{param: slices.Min(s.pending[i:]), Fault: Fault{
			Code:    "cycle",
			Message: "parameters refer to each other: " + strings.Join(append(slices.Clone(s.pending[i:]), name), " → "),
		}}
	}
	s.pending = append(s.pending, name)
	result, t := s.evaluate(name, kind)
	s.pending = s.pending[:len(s.pending)-1]
	if t != nil {
		if t.param == "" {
			t.param = name
		}
		return value{}, t
	}
	if s.params == nil {
		s.params = map[string]value{}
	}
	s.params[name] = result
	return result, nil
}

func (s *scope) evaluate(name string, kind entities.ParamType) (value, *trouble) {
	if v, ok := s.given[name]; ok {
		return value{v: v, kind: kind}, nil
	}
	if kindText[kind] == "" { // told: its type is wrong
		return value{v: "", kind: kind, symbolic: true}, nil
	}
	v, ok := s.declared[name]
	if !ok && s.fixing {
		return value{}, &trouble{inChannel: true, Fault: Fault{
			Code: codeNotFixed, Message: fmt.Sprintf("parameter %q shapes the chart and has no value", name),
			Expected: "a default, or a value in perReleaseChannel",
		}}
	}
	if !ok && s.version != "" {
		return value{}, &trouble{inChannel: true, Fault: Fault{
			Code: "missing-parameter", Message: fmt.Sprintf("parameter %q has no value", name),
			Expected: "one from the release",
		}}
	}
	if !ok {
		return value{v: "${{ params." + name + " }}", kind: kind, symbolic: true}, nil
	}
	text, isText := v.(string)
	if !isText || !hasSubstitution(text) {
		fit, fault := fitLiteral(v, kind)
		if fault != nil {
			return value{}, &trouble{Fault: *fault}
		}
		return value{v: fit, kind: kind}, nil
	}
	result, t := s.expand(text)
	if t != nil {
		return value{}, t
	}
	return fitResult(result, kind)
}

// env renders the value of an environment variable, the only place for a secret.
func (s *scope) env(v entities.Value) (entities.Value, *trouble) {
	if v.WorkerEnv != "" || !hasSubstitution(v.Literal) {
		return v, nil
	}
	result, t := s.expand(v.Literal)
	if t != nil {
		return entities.Value{}, t
	}
	if secret, ok := result.v.(entities.Value); ok {
		return secret, nil
	}
	return entities.Value{Literal: asText(result.v)}, nil
}

// text renders a value that is text and no secret.
func (s *scope) text(text string) (string, *trouble) {
	if !hasSubstitution(text) {
		return text, nil
	}
	result, t := s.expand(text)
	if t != nil {
		return "", t
	}
	return asText(result.v), nil
}
