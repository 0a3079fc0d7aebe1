package intent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/converge-engine/converge/intent/internal/sources"
	"github.com/converge-engine/converge/intent/internal/strict"
)

// built are the objects of a kustomization or of a chart, and what is wrong with them. They have no
// places of their own: faults are reported where a service names the source.
type built struct {
	objects []*object
	faults  []Fault
}

// readTexts reads the objects of rendered texts; byHelm says that tokens and hooks may stand in them.
func readTexts(texts []sources.Text, byHelm bool) *built {
	all := &built{}
	for _, text := range texts {
		r := &objectReader{file: text.Name, origin: text.Name, rendered: byHelm}
		if err := r.read(text.Data); err != nil {
			all.faults = append(all.faults, Fault{Code: "syntax", Message: fmt.Sprintf("%s is no YAML: %s", text.Name, strings.TrimPrefix(err.Error(), "yaml: "))})
		}
		for _, d := range r.decoders {
			for _, p := range d.Problems {
				p.Message = strings.TrimSpace(fmt.Sprintf("%s (%s): %s", p.Path, text.Name, p.Message))
				all.faults = append(all.faults, p.Fault)
			}
		}
		all.objects = append(all.objects, r.objects...)
	}
	return all
}

// kustomization builds the kustomization in a directory.
func (l *objectLoader) kustomization(full string) []Fault {
	from := l.into
	if from.built[full] == nil {
		text, files, err := sources.Kustomize(l.fsys, full)
		l.config.Files = append(l.config.Files, files...)
		if err != nil {
			from.built[full] = &built{faults: []Fault{refusal("kustomize", "the kustomization cannot be built: ", err)}}
		} else {
			from.built[full] = readTexts([]sources.Text{text}, false)
		}
	}
	return from.built[full].faults
}

// refusal words why a source cannot be used.
func refusal(code, prefix string, err error) Fault {
	fault := Fault{Code: code, Message: prefix + err.Error()}
	var refused *sources.Refusal
	if errors.As(err, &refused) {
		fault.Message, fault.Expected = prefix+refused.Text, refused.Expected
	}
	return fault
}

// valuesFile is a file of values for charts.
type valuesFile struct {
	*strict.Decoder
	values map[string]any
}

func (l *objectLoader) valuesFile(full string) *Fault {
	if _, done := l.into.values[full]; done {
		return nil
	}
	text, fault := l.read(full, maxSource)
	if fault != nil {
		return fault
	}
	file := &valuesFile{Decoder: &strict.Decoder{File: full}}
	l.into.values[full] = file
	l.decoders = append(l.decoders, file.Decoder)
	var node yaml.Node
	if err := decodeNode(yaml.NewDecoder(bytes.NewReader(text)), &node); err != nil {
		if len(bytes.TrimSpace(text)) == 0 {
			return nil
		}
		l.into.incomplete = true
		l.syntax(full, text, err)
		return nil
	}
	if len(node.Content) == 0 || node.Content[0].ShortTag() == "!!null" {
		return nil
	}
	v, bounded := file.DecodeAny(node.Content[0])
	values, ok := v.(map[string]any)
	if bounded && !ok {
		file.Fail("", node.Content[0], Fault{Code: "wrong-type", Message: "this is " + strict.Describe(node.Content[0]), Expected: "a mapping of values"})
	}
	file.values = values
	return nil
}

// chart reads the chart that a service names.
func (l *objectLoader) chart(s *document[Service], at string, h *ServiceHelm) {
	if h.Digest != "" && h.Chart == "" && !s.Faulty(at) {
		l.wrong(s, at+".digest", Fault{Code: "missing-field", Message: "a digest is that of the chart beside it", Expected: `"chart" too`})
	}
	if !s.Has(at+".chart") || s.Faulty(at+".chart") || s.Faulty(at+".digest") {
		return
	}
	if strings.Contains(h.Chart, "://") {
		l.remoteChart(s, at, h)
		return
	}
	l.at(s, at+".chart", h.Chart, func(full string) []Fault {
		key := chartKey(full, h.Digest)
		if l.into.charts[key] != nil {
			return nil
		}
		chart, err := l.localChart(full, string(h.Digest))
		if err != nil {
			return []Fault{{Code: "chart", Message: fmt.Sprintf("%s is no chart that can be used: %v", full, strict.Reason(err)), Expected: "a directory with a Chart.yaml, or a .tgz file of one"}}
		}
		l.into.charts[key] = chart
		return nil
	})
}

func chartKey(from string, digest ChartDigest) string { return from + "#" + string(digest) }

func (l *objectLoader) localChart(full, digest string) (*sources.Chart, error) {
	info, err := fs.Stat(l.fsys, full)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		if digest != "" {
			return nil, fmt.Errorf("a directory has no digest")
		}
		chart, files, err := sources.ReadChart(l.fsys, full)
		l.config.Files = append(l.config.Files, files...)
		return chart, err
	}
	if !info.Mode().IsRegular() || info.Size() > sources.MaxTree {
		return nil, fmt.Errorf("it is no regular file of at most %d bytes", sources.MaxTree)
	}
	data, err := fs.ReadFile(l.fsys, full)
	if err != nil {
		return nil, err
	}
	l.config.Files = append(l.config.Files, full)
	if err := sources.Check(data, digest); err != nil {
		return nil, err
	}
	return sources.OpenChart(data)
}

// remoteChart fetches a chart that is pinned by its digest.
func (l *objectLoader) remoteChart(s *document[Service], at string, h *ServiceHelm) {
	switch {
	case !strings.HasPrefix(h.Chart, "https://"):
		l.wrong(s, at+".chart", Fault{Code: "bad-value", Message: fmt.Sprintf("%q cannot be fetched", strict.Clip(h.Chart)), Expected: "an address that begins with https://, or a path"})
		return
	case h.Digest == "":
		l.wrong(s, at+".chart", Fault{Code: "missing-field", Message: "a chart from elsewhere may change", Expected: `"digest" beside it: sha256: and 64 hexadecimal digits`})
		return
	}
	key := chartKey(h.Chart, h.Digest)
	if l.into.charts[key] != nil {
		return
	}
	client := l.config.options.Client
	if client == nil {
		client = http.DefaultClient
	}
	data, err := sources.Fetch(context.Background(), client, h.Chart, string(h.Digest))
	if err == nil {
		l.into.charts[key], err = sources.OpenChart(data)
	}
	if err != nil {
		delete(l.into.charts, key)
		l.wrong(s, at+".chart", Fault{Code: "chart", Message: fmt.Sprintf("%s cannot be used: %v", path.Base(h.Chart), err)})
	}
}

// render renders a chart once for the same values, whichever services and channels use it.
func (from *objectSources) render(key string, chart *sources.Chart, release sources.Release) *built {
	data, err := canonical([]any{key, release.Name, release.Namespace, release.CRDs, release.Values})
	if err != nil {
		return &built{faults: []Fault{{Code: "chart", Message: "the values cannot be JSON: " + err.Error()}}}
	}
	from.mu.Lock()
	defer from.mu.Unlock()
	memo := hashOf(data)
	if from.rendered[memo] == nil {
		texts, err := chart.Render(release)
		if err != nil {
			from.rendered[memo] = &built{faults: []Fault{refusal("chart", "the chart cannot be used: ", err)}}
		} else {
			from.rendered[memo] = readTexts(texts, true)
		}
	}
	return from.rendered[memo]
}
