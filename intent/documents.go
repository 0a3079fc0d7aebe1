package intent

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/converge-engine/converge/intent/internal/strict"
)

// document is one decoded document and where everything in it stands.
type document[T any] struct {
	*strict.Decoder
	Spec T
}

// loader reads files into a Config.
type loader struct {
	fsys     fs.FS
	config   *Config
	problems Problems
	decoders []*strict.Decoder
	broken   bool // a document could not be read at all: what refers to it is not judged
}

func (l *loader) fail(file string, line, column int, fault Fault) {
	l.problems = append(l.problems, Problem{File: file, Line: max(line, 1), Column: max(column, 1), Fault: fault})
}

func (l *loader) collect() Problems {
	all := l.problems
	for _, d := range l.decoders {
		all = append(all, d.Problems...)
	}
	return all
}

// source reads one YAML file. After a syntax error nothing more of that file can be read.
func (l *loader) source(name string) {
	text, fault := l.read(name, maxSource)
	if fault != nil {
		l.broken = true
		l.fail(name, 1, 1, *fault)
		return
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var node yaml.Node
		err := decodeNode(decoder, &node)
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			l.broken = true
			l.syntax(name, text, err)
			return
		}
		if len(node.Content) > 0 && node.Content[0].ShortTag() != "!!null" {
			l.document(name, node.Content[0])
		}
	}
}

// decodeNode keeps the parser's own failures from ending the process.
func decodeNode(decoder *yaml.Decoder, node *yaml.Node) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("yaml: %v", r)
		}
	}()
	return decoder.Decode(node)
}

// read returns a file's bytes, or what is wrong with it.
func (l *loader) read(name string, limit int64) ([]byte, *Fault) {
	info, err := fs.Stat(l.fsys, name)
	if err == nil && info.IsDir() {
		return nil, &Fault{Code: "no-file", Message: fmt.Sprintf("%s is a directory", name), Expected: "a file"}
	}
	if err == nil && !info.Mode().IsRegular() {
		return nil, &Fault{Code: "no-file", Message: fmt.Sprintf("%s is no regular file", name), Expected: "a file"}
	}
	if err == nil && info.Size() > limit {
		return nil, &Fault{Code: "too-large", Message: fmt.Sprintf("%s has %d bytes", name, info.Size()), Expected: fmt.Sprintf("at most %d", limit)}
	}
	var text []byte
	if err == nil {
		text, err = fs.ReadFile(l.fsys, name)
	}
	if err != nil {
		return nil, &Fault{Code: "no-file", Message: fmt.Sprintf("%s cannot be read: %v", name, strict.Reason(err))}
	}
	l.config.Files = append(l.config.Files, name)
	if !utf8.Valid(text) {
		return nil, &Fault{Code: "not-text", Message: name + " is not UTF-8 text"}
	}
	return text, nil
}

// document decodes one document by its kind.
func (l *loader) document(file string, node *yaml.Node) {
	d := &strict.Decoder{File: file}
	l.decoders = append(l.decoders, d)
	kind, ok := l.kind(d, node)
	if !ok {
		l.broken = true
		return
	}
	switch kind {
	case "Application":
		doc := &document[Application]{Decoder: d}
		if l.decode(d, node, &doc.Spec) {
			l.addApplication(doc)
		}
	case "Service":
		doc := &document[Service]{Decoder: d}
		if l.decode(d, node, &doc.Spec) {
			l.config.services = append(l.config.services, doc)
		}
	case "Runtime":
		doc := &document[Runtime]{Decoder: d}
		if l.decode(d, node, &doc.Spec) {
			l.config.runtimes = append(l.config.runtimes, doc)
		}
	case "Protection":
		doc := &document[Protection]{Decoder: d}
		if l.decode(d, node, &doc.Spec) {
			l.config.protections = append(l.config.protections, doc)
		}
	case "Extension":
		doc := &document[Extension]{Decoder: d}
		if l.decode(d, node, &doc.Spec) {
			l.config.extensions = append(l.config.extensions, doc)
		}
	}
}

func (l *loader) decode(d *strict.Decoder, node *yaml.Node, spec any) bool {
	bounded := d.Decode(node, spec)
	l.broken = l.broken || !bounded
	return bounded
}

func (l *loader) addApplication(doc *document[Application]) {
	if first := l.config.application; first != nil {
		doc.Report("kind", Fault{
			Code:     "duplicate-application",
			Message:  fmt.Sprintf("there already is an Application at %s:%d", first.File, first.At("").Line),
			Expected: "one Application for this directory and those below",
		})
		return
	}
	l.config.application = doc
}

var kinds = []string{"Application", "Service", "Runtime", "Protection", "Extension"}

// kind reads a document's kind, and refuses other versions of the format.
func (l *loader) kind(d *strict.Decoder, node *yaml.Node) (string, bool) {
	var head struct{ apiVersion, kind *yaml.Node }
	for i := 0; node.Kind == yaml.MappingNode && i+1 < len(node.Content); i += 2 {
		switch node.Content[i].Value {
		case "apiVersion":
			head.apiVersion = node.Content[i+1]
		case "kind":
			head.kind = node.Content[i+1]
		}
	}
	if v := head.apiVersion; v != nil && v.Value != APIVersion {
		d.Fail("apiVersion", v, Fault{Code: "unknown-version", Message: fmt.Sprintf("there is no version %q of this format", strict.Clip(v.Value)), Expected: APIVersion})
		return "", false
	}
	if head.kind == nil {
		d.Fail("kind", node, Fault{Code: "missing-field", Message: `a document begins with "apiVersion" and "kind"; "kind" is missing`, Expected: strict.OneOf(kinds)})
		return "", false
	}
	kind := head.kind.Value
	for _, known := range kinds {
		if kind == known {
			return kind, true
		}
	}
	fault := Fault{Code: "unknown-kind", Message: fmt.Sprintf("there is no kind %q", strict.Clip(kind)), Expected: strict.OneOf(kinds), Suggestion: strict.Nearest(kind, kinds)}
	d.Fail("kind", head.kind, fault)
	return "", false
}

// contents reads the files that services pass on to their runtime.
func (l *loader) contents() {
	for _, s := range l.config.services {
		l.serviceFiles(s, "custom.files", s.Spec.Custom)
		for i, o := range s.Spec.PerReleaseChannel {
			l.serviceFiles(s, strict.Index("perReleaseChannel", i)+".custom.files", o.Custom)
		}
	}
}

func (l *loader) serviceFiles(s *document[Service], at string, custom *ServiceCustom) {
	if custom == nil {
		return
	}
	seen := map[string]bool{}
	for i, name := range custom.Files {
		where := strict.Index(at, i)
		clean, fault := localFile(name)
		if fault == nil && seen[clean] {
			fault = &Fault{Code: "duplicate-name", Message: fmt.Sprintf("%s is listed twice", clean)}
		}
		if fault != nil {
			s.Report(where, *fault)
			continue
		}
		seen[clean] = true
		full := path.Join(path.Dir(s.File), clean)
		if _, done := l.config.contents[full]; done {
			continue
		}
		text, fault := l.read(full, maxAsset)
		if fault != nil {
			s.Report(where, *fault)
			continue
		}
		l.config.contents[full] = string(text)
	}
}

// localFile cleans a path that must lead to the declaring file's directory or below.
func localFile(name string) (string, *Fault) {
	clean := path.Clean(name)
	if name == "" || path.IsAbs(name) || strings.Contains(name, `\`) || clean == ".." || strings.HasPrefix(clean, "../") || !fs.ValidPath(clean) {
		return "", &Fault{
			Code: "outside-directory", Message: fmt.Sprintf("%q leads out of the directory of this file", strict.Clip(name)),
			Expected: "a relative path with slashes, at or below it",
		}
	}
	return clean, nil
}
