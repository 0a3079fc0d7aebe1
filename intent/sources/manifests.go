package sources

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/converge-engine/converge/intent/charts"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/internal/strict"
)

// Objects are the loaded sources of services on Kubernetes runtimes. Each file is read once for all services and channels.
type Objects struct {
	Listed    map[string][]string  // files of a manifests entry, by its path in the directory
	Manifests map[string][]*Object // by file
	Built     map[string]*Built    // of kustomizations, by directory
	Charts    map[string]*Chart
	Values    map[string]*valuesFile
	Patches   map[string]string  // patch files
	Captured  charts.Lock        // only its capabilities are used
	Tasks     map[string]*Object // ECS task definitions and services, by TaskKey
	// Incomplete: some source could not be read, which is reported.
	Incomplete bool

	mu       sync.Mutex
	rendered map[string]*Built // of charts, by all their inputs
	patched  map[string]*patched
}

// objectLoader reads the sources that services refer to.
type objectLoader struct {
	*config.Reader
	chartFetches
	into *Objects
}

func newLoader(from *config.Reader) *objectLoader {
	return &objectLoader{Reader: from, chartFetches: chartFetches{fetched: map[string]*strict.Fault{}}, into: &Objects{
		Listed: map[string][]string{}, Manifests: map[string][]*Object{}, Built: map[string]*Built{},
		Charts: map[string]*Chart{}, Values: map[string]*valuesFile{}, Tasks: map[string]*Object{}, rendered: map[string]*Built{}, Patches: map[string]string{}, patched: map[string]*patched{},
	}}
}

// Read reads the sources of all services, and reports their problems.
func Read(from *config.Reader) *Objects {
	l := newLoader(from)
	for _, s := range l.Config.Services {
		l.serviceObjects(s, "kubernetes", s.Spec.Kubernetes)
		l.readTasks(s, "ecs", s.Spec.ECS)
		for i, o := range s.Spec.PerReleaseChannel {
			l.serviceObjects(s, strict.Index("perReleaseChannel", i)+".kubernetes", o.Kubernetes)
			l.readTasks(s, strict.Index("perReleaseChannel", i)+".ecs", o.ECS)
		}
	}
	return l.into
}

func (l *objectLoader) serviceObjects(s *config.Document[config.Service], at string, k *config.ServiceKubernetes) {
	if k == nil {
		return
	}
	for i, name := range k.Manifests {
		l.readAt(s, strict.Index(at+".manifests", i), name, asList(l.manifests))
	}
	if s.Has(at + ".kustomize") {
		l.readAt(s, at+".kustomize", k.Kustomize, l.kustomization)
	}
	for i, p := range k.Patches {
		l.patchFile(s, strict.Index(at+".patches", i), p)
	}
	if k.Helm != nil {
		l.chart(s, at+".helm", k.Helm)
		l.captured(s, at+".helm")
		for i, name := range k.Helm.ValuesFiles {
			l.readAt(s, strict.Index(at+".helm.valuesFiles", i), name, asList(l.valuesFile))
		}
	}
}

// captured makes the captured capabilities of clusters available to charts.
func (l *objectLoader) captured(s *config.Document[config.Service], at string) {
	lock, err := l.readLock()
	if err == nil {
		l.into.Captured = lock
		return
	}
	if !l.lockReported {
		l.lockReported = true
		l.reportFault(s, at, strict.Fault{Code: "lock", Message: fmt.Sprintf("%s cannot be used: %v", charts.LockFile, err), Expected: lockCommand})
	}
}

// asList converts at most one fault to a list.
func asList(read func(full string) *strict.Fault) func(string) []strict.Fault {
	return func(full string) []strict.Fault {
		if fault := read(full); fault != nil {
			return []strict.Fault{*fault}
		}
		return nil
	}
}

// readAt reads the source at a path in a service, and reports its problems there.
func (l *objectLoader) readAt(s *config.Document[config.Service], where, name string, read func(full string) []strict.Fault) {
	if s.Faulty(where) {
		return
	}
	clean, fault := config.LocalFile(name)
	if fault != nil {
		l.reportFault(s, where, *fault)
		return
	}
	for _, fault := range read(path.Join(path.Dir(s.File), clean)) {
		l.reportFault(s, where, fault)
	}
}

// reportFault reports a problem of a source of objects.
func (l *objectLoader) reportFault(s *config.Document[config.Service], where string, fault strict.Fault) {
	l.into.Incomplete = true
	s.Report(where, fault)
}

// manifests reads a file, all files of a directory, or all matches of a glob.
func (l *objectLoader) manifests(full string) *strict.Fault {
	from := l.into
	if _, done := from.Listed[full]; done {
		return nil
	}
	files, fault := l.listManifests(full)
	if fault != nil {
		return fault
	}
	from.Listed[full] = files
	remaining := int64(MaxTree)
	for _, name := range files {
		if _, done := from.Manifests[name]; done {
			continue
		}
		text, fault := l.Read(name, remaining)
		if fault != nil {
			return fault
		}
		remaining -= int64(len(text))
		from.Manifests[name] = l.manifest(name, text)
	}
	return nil
}

func (l *objectLoader) listManifests(full string) ([]string, *strict.Fault) {
	if strings.ContainsAny(full, "*?[") {
		matched, err := fs.Glob(l.FS, full)
		if err != nil {
			return nil, &strict.Fault{Code: "no-file", Message: fmt.Sprintf("invalid pattern %q", full), Expected: "* ? and [a-z] for parts of names"}
		}
		matched = slices.DeleteFunc(matched, func(name string) bool { return !l.isManifest(name) })
		if len(matched) == 0 {
			return nil, &strict.Fault{Code: "no-file", Message: full + " matches no manifest", Expected: "files ending in .yaml, .yml or .json"}
		}
		return matched, nil
	}
	info, err := fs.Stat(l.FS, full)
	if err != nil || !info.IsDir() {
		return []string{full}, nil //nolint:nilerr // reported when the file is read
	}
	entries, err := fs.ReadDir(l.FS, full)
	if err != nil {
		return nil, &strict.Fault{Code: "no-file", Message: fmt.Sprintf("%s cannot be read: %v", full, strict.Reason(err))}
	}
	var files []string
	for _, e := range entries {
		if slices.Contains(kustomizationNames, e.Name()) {
			return nil, &strict.Fault{Code: "wrong-kind", Message: full + " contains a kustomization", Expected: "the directory as kubernetes.kustomize, or the names of its manifests"}
		}
		if name := path.Join(full, e.Name()); l.isManifest(name) {
			files = append(files, name)
		}
	}
	if len(files) == 0 {
		return nil, &strict.Fault{Code: "no-file", Message: full + " contains no manifest", Expected: "files ending in .yaml, .yml or .json directly in it"}
	}
	return files, nil
}

// isManifest reports whether a file in a directory is a manifest. The directory may also contain configuration.
func (l *objectLoader) isManifest(name string) bool {
	info, err := fs.Stat(l.FS, name)
	if err != nil || info.IsDir() || config.IsSource(path.Base(name)) || strings.HasPrefix(path.Base(name), ".") {
		return false
	}
	return slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(name))
}

// manifest reads the objects of a manifest.
func (l *objectLoader) manifest(name string, text []byte) []*Object {
	r := &objectReader{file: name}
	if isEncrypted(text) {
		r.encrypted = encrypted{newEncryptedFile(name, text)}
	}
	if err := r.read(text); err != nil {
		l.into.Incomplete = true
		l.Syntax(name, text, err)
	}
	for _, d := range r.decoders {
		l.into.Incomplete = l.into.Incomplete || len(d.Problems) > 0
	}
	l.Decoders = append(l.Decoders, r.decoders...)
	return r.objects
}

// read reads all documents of a text. It returns only errors of the parser.
func (r *objectReader) read(text []byte) error {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var node yaml.Node
		err := config.DecodeNode(decoder, &node)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if len(node.Content) > 0 && node.Content[0].ShortTag() != "!!null" {
			if r.rendered {
				restoreNode(&node, map[*yaml.Node]bool{})
			}
			r.document(node.Content[0])
		}
	}
}
