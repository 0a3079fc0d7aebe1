package compile

import (
	"fmt"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/internal/strict"
	"github.com/converge-engine/converge/intent/internal/substitute"
)

// fieldCompiler checks a protection or an extension and applies its substitutions in two passes. The pass without a scope checks texts
// without substitutions, once. The pass with a scope checks substituted texts, for each service and channel.
type fieldCompiler struct {
	c     *compiler
	d     *strict.Decoder // of the declaring document
	at    string          // path in the document
	scope *substitute.Scope
}

// reportUnscoped reports a problem that does not depend on the scope.
func (f *fieldCompiler) reportUnscoped(at string, fault strict.Fault) {
	if f.scope == nil {
		f.c.report(f.d, at, fault)
	}
}

// reportSubstituted reports a problem that depends on texts. If the texts have substitutions, it reports it per channel.
func (f *fieldCompiler) reportSubstituted(at, texts string, fault strict.Fault) {
	switch {
	case f.scope == nil && !config.HasSubstitution(texts):
		f.c.report(f.d, at, fault)
	case f.scope != nil && config.HasSubstitution(texts):
		f.c.reportIn(f.d, at, f.scope.Channel, substitute.ScopedFault{Fault: fault, InChannel: true})
	}
}

// rejectEmpty rejects an empty list or mapping.
func (f *fieldCompiler) rejectEmpty(at string, length int, expected string) {
	if length == 0 && f.d.Has(at) && !f.d.Faulty(at) {
		f.reportUnscoped(at, strict.Fault{Code: "missing-field", Message: "this is empty", Expected: expected})
	}
}

// period returns a duration.
func (f *fieldCompiler) period(at string, given config.Duration, within span) time.Duration {
	if f.scope != nil {
		return given.Or(within.fallback)
	}
	return f.c.atLeast(f.d, at, given, within)
}

// expand substitutes a text and reports its problems. A problem of a parameter's value is reported at the parameter.
func (f *fieldCompiler) expand(at, text string) (substitute.Value, bool) {
	v, t := f.scope.Expand(text)
	if t == nil {
		return v, true
	}
	if t.Param == "" {
		if t.Code == "unknown-parameter" && len(f.scope.Types) == 0 {
			t.Message, t.Expected = "parameters are not available here", "a constant or a label of the channel, or a reference to a document that declares parameters"
		}
		f.c.reportIn(f.d, at, f.scope.Channel, *t)
	}
	return v, false
}

// text returns a text with its substitutions applied; check returns a problem of it. The version stays open.
func (f *fieldCompiler) text(at, text string, check func(string) *strict.Fault) string {
	substituted := config.HasSubstitution(text)
	if substituted && f.scope != nil {
		v, ok := f.expand(at, text)
		if ok && v.Kind == entities.ParamSecret {
			f.reportSubstituted(at, text, strict.Fault{Code: "secret-in-text", Message: "a secret is part of a text", Expected: "the secret alone in an environment variable, a header or a token"})
		}
		if !ok || v.Kind == entities.ParamSecret {
			return ""
		}
		text = substitute.AsText(v.V)
	}
	if check == nil || substituted == (f.scope == nil) || !f.d.Has(at) || f.d.Faulty(at) {
		return text
	}
	if fault := check(text); fault != nil {
		if substituted {
			f.c.reportIn(f.d, at, f.scope.Channel, substitute.ScopedFault{Fault: *fault, InChannel: true})
		} else {
			f.c.report(f.d, at, *fault)
		}
	}
	return text
}

func (f *fieldCompiler) texts(at string, all []string, check func(string) *strict.Fault) []string {
	var done []string
	for i, text := range all {
		done = append(done, f.text(strict.Index(at, i), text, check))
	}
	return done
}

// number returns a number; nil if none is given or it is not known yet.
func (f *fieldCompiler) number(at string, n *config.Number) *float64 {
	switch {
	case n == nil || f.d.Faulty(at):
		return nil
	case n.Text == "":
		return &n.V
	case f.scope == nil:
		return nil
	}
	v, ok := f.expand(at, n.Text)
	if !ok {
		return nil
	}
	fit, t := substitute.FitResult(v, entities.ParamFloat)
	if t != nil {
		t.InChannel = true
		f.c.reportIn(f.d, at, f.scope.Channel, *t)
		return nil
	}
	number, ok := fit.V.(float64)
	if !ok {
		return nil // a parameter without a value; already reported
	}
	return &number
}

// value returns a text or a secret.
func (f *fieldCompiler) value(at string, v config.EnvValue) entities.Value {
	if entities.Value(v).IsSecret() || f.scope == nil || !config.HasSubstitution(v.Literal) {
		return entities.Value(v)
	}
	result, ok := f.expand(at, v.Literal)
	if !ok {
		return entities.Value{}
	}
	if secret, isSecret := result.V.(entities.Value); isSecret {
		return secret
	}
	return entities.Value{Literal: substitute.AsText(result.V)}
}

func (f *fieldCompiler) token(at string, v *config.EnvValue) *entities.Value {
	if v == nil {
		return nil
	}
	token := f.uncaptured(at, f.value(at, *v))
	return &token
}

func (f *fieldCompiler) env(at string, env map[config.EnvName]config.EnvValue) map[string]entities.Value {
	var all map[string]entities.Value
	for _, name := range strict.Keys(env) {
		if all == nil {
			all = map[string]entities.Value{}
		}
		at := strict.Key(at, name)
		all[name] = f.value(at, env[config.EnvName(name)])
		if f.scope != nil {
			f.c.checkCaptured(f.d, at, f.scope.Channel, all[name])
		}
	}
	return all
}

// uncaptured rejects captured secrets, which only commands may use.
func (f *fieldCompiler) uncaptured(at string, v entities.Value) entities.Value {
	if v.Captured != "" {
		f.reportUnscoped(at, capturedOutsideCommands)
	}
	return v
}

var capturedOutsideCommands = strict.Fault{Code: "not-captured", Message: "captured secrets are available only in commands of services", Expected: "another secret"}

// declaration is a document to which others refer with values for its parameters.
type declaration struct {
	kind       string // "protection" or "extension"
	name       string
	d          *strict.Decoder
	parameters []config.Parameter
}

// reference is a reference to a document.
type reference struct {
	d      *strict.Decoder
	at     string
	values map[config.ParameterName]config.Literal
}

// checkParameters checks the parameters that a document declares, once.
func (c *compiler) checkParameters(of declaration) {
	seen := map[config.ParameterName]bool{}
	for i, p := range of.parameters {
		at := strict.Index("parameters", i)
		if seen[p.Name] {
			c.report(of.d, at+".name", strict.Fault{Code: "duplicate-name", Message: fmt.Sprintf("parameter %q is declared twice", string(p.Name))})
		}
		seen[p.Name] = true
		if p.Default != nil {
			c.checkLiteral(of.d, at+".default", p.Default.V, entities.ParamType(p.Type))
		}
	}
}

// checkLiteral rejects a value that does not fit its parameter, unless it has a substitution.
func (c *compiler) checkLiteral(d *strict.Decoder, at string, v any, kind entities.ParamType) {
	if text, isText := v.(string); isText && config.HasSubstitution(text) || substitute.KindText[kind] == "" || d.Faulty(at) {
		return
	}
	if _, fault := substitute.FitLiteral(v, kind); fault != nil {
		c.report(d, at, *fault)
	}
}

// checkReference checks the parameter values of a reference, once.
func (c *compiler) checkReference(to declaration, from reference) {
	types := map[string]entities.ParamType{}
	for _, p := range to.parameters {
		types[string(p.Name)] = entities.ParamType(p.Type)
		if _, given := from.values[p.Name]; !given && p.Default == nil && p.Name != "" && !from.d.Faulty(from.at+".parameters") {
			c.report(from.d, from.at, strict.Fault{
				Code: "missing-parameter", Message: fmt.Sprintf("%s %q needs the parameter %q", to.kind, to.name, string(p.Name)), Expected: `a value under "parameters"`,
			})
		}
	}
	for _, name := range strict.Keys(from.values) {
		at := strict.Key(from.at+".parameters", name)
		kind, known := types[name]
		if !known && !to.d.Faulty("parameters") {
			fault := strict.Unknown("unknown-parameter", fmt.Sprintf("%s %q has no parameter %q", to.kind, to.name, name), name, strict.Keys(types))
			if len(types) == 0 {
				fault.Expected = "none, because it declares none"
			}
			c.report(from.d, at, fault)
			continue
		}
		c.checkLiteral(from.d, at, from.values[config.ParameterName(name)].V, kind)
	}
}

// referenceScope returns a scope with the parameter values of a reference.
func (c *compiler) referenceScope(in *substitute.Scope, to declaration, from reference) *substitute.Scope {
	s := &substitute.Scope{
		Application: in.Application, Service: in.Service, Channel: in.Channel, Labels: in.Labels, Constants: in.Constants, Addons: in.Addons,
		Types: map[string]entities.ParamType{}, Declared: map[string]any{}, Owner: fmt.Sprintf("%s %q", to.kind, to.name),
	}
	positions := map[string]located[*strict.Decoder]{}
	for i, p := range to.parameters {
		name := string(p.Name)
		s.Types[name] = entities.ParamType(p.Type)
		if p.Default != nil {
			s.Declared[name] = p.Default.V
			positions[name] = located[*strict.Decoder]{to.d, strict.Index("parameters", i) + ".default"}
		}
		if given, ok := from.values[p.Name]; ok {
			s.Declared[name] = given.V
			positions[name] = located[*strict.Decoder]{from.d, strict.Key(from.at+".parameters", name)}
		}
	}
	for _, name := range strict.Keys(positions) {
		text, isText := s.Declared[name].(string)
		if _, t := s.Param(name); t != nil && t.Param == name && isText && config.HasSubstitution(text) {
			c.reportIn(positions[name].v, positions[name].at, s.Channel, *t)
		}
	}
	return s
}
