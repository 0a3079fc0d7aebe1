// Package sources reads the sources of services on Kubernetes runtimes: manifests, kustomizations and Helm charts. It reads each once,
// and returns objects with the positions of their declarations.
//
// It is hermetic: no cluster, no clock, no randomness, no network except for a chart that is pinned by its digest, in the configuration
// or in converge.lock. It only reads files of the given file system, rejects paths that lead out of it, and substitutes nothing. Of
// intent it imports config, bundle, charts and sops.
package sources

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"sync"

	"github.com/converge-engine/converge/intent/charts"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/internal/canonical"
	"github.com/converge-engine/converge/intent/internal/strict"
)

// Built contains the objects of a kustomization or a chart, and its problems. The objects have no positions of their own: problems are
// reported where a service names the source.
type Built struct {
	Objects []*Object
	Faults  []strict.Fault
}

// readTexts reads the objects of rendered texts. With byHelm, they may contain tokens and hooks. Among are the encrypted source files,
// one of which contains each encrypted object.
func readTexts(texts []Text, byHelm bool, among encrypted) *Built {
	all := &Built{}
	for _, text := range texts {
		r := &objectReader{file: text.Name, origin: text.Name, rendered: byHelm, encrypted: among}
		if err := r.read(text.Data); err != nil {
			all.Faults = append(all.Faults, strict.Fault{Code: "syntax", Message: fmt.Sprintf("%s is not valid YAML: %s", text.Name, strings.TrimPrefix(err.Error(), "yaml: "))})
		}
		for _, d := range r.decoders {
			for _, p := range d.Problems {
				p.Message = strings.TrimSpace(fmt.Sprintf("%s (%s): %s", p.Path, text.Name, p.Message))
				all.Faults = append(all.Faults, p.Fault)
			}
		}
		all.Objects = append(all.Objects, r.objects...)
	}
	return all
}

// kustomization builds the kustomization in a directory.
func (l *objectLoader) kustomization(full string) []strict.Fault {
	from := l.into
	if from.Built[full] == nil {
		text, files, err := Kustomize(l.FS, full, l)
		l.Config.Files = append(l.Config.Files, files...)
		if err != nil {
			from.Built[full] = &Built{Faults: []strict.Fault{refusal("kustomize", "the kustomization cannot be built: ", err)}}
		} else {
			from.Built[full] = latestBuilt.read(text, encryptedIn(l.FS, files))
		}
	}
	return from.Built[full].Faults
}

// latestBuilt are the objects of the latest kustomizations. Objects are never modified, and several compilations of one command, such as
// those of an import, read the same texts.
var latestBuilt builtTexts

// maxBuilt bounds the bytes of the texts whose objects are kept; objects take some times more.
const maxBuilt = 16 << 20

type builtTexts struct {
	mu    sync.Mutex
	known map[[sha256.Size]byte]*Built
	size  int
}

// read returns the objects of a built text. Those of encrypted files are not kept.
func (b *builtTexts) read(text Text, among encrypted) *Built {
	if len(among) > 0 {
		return readTexts([]Text{text}, text.charts, among)
	}
	key := sha256.Sum256(fmt.Appendf(nil, "%q %t %s", text.Name, text.charts, text.Data))
	b.mu.Lock()
	found := b.known[key]
	b.mu.Unlock()
	if found != nil {
		return found
	}
	found = readTexts([]Text{text}, text.charts, nil)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.size += len(text.Data); b.known == nil || b.size > maxBuilt {
		b.known, b.size = map[[sha256.Size]byte]*Built{}, len(text.Data)
	}
	b.known[key] = found
	return found
}

// refusal returns a problem that explains why a source cannot be used.
func refusal(code, prefix string, err error) strict.Fault {
	fault := strict.Fault{Code: code, Message: prefix + err.Error()}
	var refused *Refusal
	if errors.As(err, &refused) {
		fault.Message, fault.Expected = prefix+refused.Text, refused.Expected
	}
	return fault
}

// chart reads the chart that a service names.
func (l *objectLoader) chart(s *config.Document[config.Service], at string, h *config.ServiceHelm) {
	named, ok := l.mergedChart(s, at, h)
	if !ok {
		return
	}
	where := at + ".chart"
	if !s.Has(where) {
		where = at + ".version"
	}
	if named.Locked() || strings.Contains(named.Chart, "://") {
		if fault := l.remoteChart(named); fault != nil {
			l.reportFault(s, where, *fault)
		}
		return
	}
	l.readAt(s, where, named.Chart, func(full string) []strict.Fault {
		key := ChartKey(path.Dir(s.File), named)
		if l.into.Charts[key] != nil {
			return nil
		}
		chart, err := l.localChart(full, string(named.Digest))
		if refused := new(Refusal); errors.As(err, &refused) {
			return []strict.Fault{refusal("chart", full+" is not a usable chart: ", err)}
		}
		if err != nil {
			return []strict.Fault{{Code: "chart", Message: fmt.Sprintf("%s is not a usable chart: %v", full, strict.Reason(err)), Expected: "a directory with a Chart.yaml, or a .tgz file of one"}}
		}
		l.into.Charts[key] = chart
		return nil
	})
}

func (l *objectLoader) localChart(full, digest string) (*Chart, error) {
	info, err := fs.Stat(l.FS, full)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		if digest != "" {
			return nil, fmt.Errorf("a directory has no digest")
		}
		chart, files, err := ReadChart(l.FS, full, l)
		l.Config.Files = append(l.Config.Files, files...)
		return chart, err
	}
	if !info.Mode().IsRegular() || info.Size() > MaxTree {
		return nil, fmt.Errorf("it is not a regular file of at most %d bytes", MaxTree)
	}
	data, err := fs.ReadFile(l.FS, full)
	if err != nil {
		return nil, err
	}
	l.Config.Files = append(l.Config.Files, full)
	if err := charts.Check(data, digest); err != nil {
		return nil, err
	}
	return OpenChart(data)
}

// Render renders a chart once per key, for all services and channels with the same values.
func (from *Objects) Render(key string, chart *Chart, release Release) *Built {
	data, err := canonical.JSON([]any{key, release.Name, release.Namespace, release.CRDs, release.Values, release.KubeVersion, release.APIVersions, release.AllAPIs})
	if err != nil {
		return &Built{Faults: []strict.Fault{{Code: "chart", Message: "the values cannot be JSON: " + err.Error()}}}
	}
	from.mu.Lock()
	defer from.mu.Unlock()
	memo := canonical.Hash(data)
	if from.rendered[memo] == nil {
		texts, err := chart.Render(release)
		if err != nil {
			from.rendered[memo] = &Built{Faults: []strict.Fault{refusal("chart", "the chart cannot be used: ", err)}}
		} else {
			from.rendered[memo] = readTexts(texts, true, nil)
		}
	}
	return from.rendered[memo]
}

// Text is one rendered file: YAML documents.
type Text struct {
	Name string // of the template or kustomization
	Data []byte

	charts bool // the kustomization has charts, so there may be Helm hooks
}

// MaxTree bounds the size of one source with all its files in bytes.
const MaxTree = 32 << 20
