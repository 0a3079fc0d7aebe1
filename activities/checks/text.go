package checks

import (
	"context"
	"regexp"
	"strings"
	"unicode"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/order"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/runtimes/custom"
	"github.com/converge-engine/converge/runtimes/secret"
)

// placeholder matches the placeholders that a definition may contain until evaluation.
var placeholder = regexp.MustCompile(`\$\{\{\s*(version|fullVersion|application|service|channel)\s*\}\}`)

// version returns the version that a person or CI named.
func (a Request) version() string {
	if a.Version != "" {
		return a.Version
	}
	return order.BaseVersion(a.Evaluation.FullVersion)
}

// fill replaces the placeholders for the versions and the channel in text. The user is responsible for quoting: in a command and its
// environment the text stays one argument.
func (a Request) fill(text string) string {
	return placeholder.ReplaceAllStringFunc(text, func(match string) string {
		switch placeholder.FindStringSubmatch(match)[1] {
		case "fullVersion":
			return a.Evaluation.FullVersion
		case "application":
			return a.Definition.Application
		case "service":
			return a.Definition.Service
		case "channel":
			return a.Definition.Channel
		}
		return a.version()
	})
}

// withPlaceholders returns a copy of the input with the placeholders of the definition replaced.
func (a Request) withPlaceholders() Request {
	d := &a.Definition
	if d.DeniedVersions != nil {
		v := *d.DeniedVersions
		v.Reason = a.fill(v.Reason)
		d.DeniedVersions = &v
	}
	if d.DeniedCommits != nil {
		v := *d.DeniedCommits
		v.Reason = a.fill(v.Reason)
		d.DeniedCommits = &v
	}
	if d.Prometheus != nil {
		v := *d.Prometheus
		v.URL, v.Query = a.fill(v.URL), a.fill(v.Query)
		d.Prometheus = &v
	}
	if d.Alertmanager != nil {
		v := *d.Alertmanager
		v.URL, v.Matchers = a.fill(v.URL), fillAll(v.Matchers, a.fill)
		d.Alertmanager = &v
	}
	if d.HTTP != nil {
		v := *d.HTTP
		v.URL, v.Headers = a.fill(v.URL), fillAll(v.Headers, a.fillValue)
		d.HTTP = &v
	}
	if d.Command != nil {
		v := *d.Command
		v.Env, v.Command.Argv = fillAll(v.Env, a.fillValue), nil
		for _, arg := range d.Command.Command.Argv {
			v.Command.Argv = append(v.Command.Argv, a.fill(arg))
		}
		if v.Job != nil {
			job := *v.Job
			job.Image = a.fill(job.Image)
			v.Job = &job
		}
		d.Command = &v
	}
	if d.Capacity != nil {
		v := *d.Capacity
		v.URL, v.Use, v.Capacity = a.fill(v.URL), a.fill(v.Use), a.fill(v.Capacity)
		d.Capacity = &v
	}
	if d.Compare != nil {
		v := *d.Compare
		for _, text := range []*string{&v.URL, &v.Query, &v.Total, &v.Control, &v.ControlTotal} {
			*text = a.fill(*text)
		}
		d.Compare = &v
	}
	if d.CEL != nil {
		v := *d.CEL
		v.Message = a.fill(v.Message)
		d.CEL = &v
	}
	if d.Always != nil {
		v := *d.Always
		v.Reason = a.fill(v.Reason)
		d.Always = &v
	}
	return a
}

func (a Request) fillValue(v entities.Value) entities.Value {
	v.Literal = a.fill(v.Literal)
	return v
}

func fillAll[T any](all map[string]T, fill func(T) T) map[string]T {
	out := make(map[string]T, len(all))
	for name, v := range all {
		out[name] = fill(v)
	}
	return out
}

// oneLine shortens external text for a reason.
func oneLine(text string, limit int) string { return runtimes.Clip(onOneLine(text), limit) }

func onOneLine(text string) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case unicode.IsControl(r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	return strings.Join(strings.Fields(text), " ")
}

// secrets resolves references and records the values to hide.
type secrets struct {
	source secret.Source
	values []string
}

func (s *secrets) resolve(ctx context.Context, what string, v entities.Value) (string, error) {
	text, err := secret.Resolve(ctx, s.source, what, v)
	if err == nil && v.IsSecret() {
		s.values = append(s.values, text)
	}
	return text, err
}

// hide removes resolved secrets from text.
func (s *secrets) hide(text string) string { return custom.Redact(text, s.values...) }
