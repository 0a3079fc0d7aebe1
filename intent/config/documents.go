// Package config has the documents that people write, one Go type for each kind, and reads the files of a
// directory into them. The types and their comments are the only description of the format: the strict
// decoder and the JSON Schema follow from them.
//
// It says what is wrong with one document by itself; whether documents fit together is for compile to say. Of
// intent it imports the decoder only.
package config

import (
	"bytes"
	_ "embed" // for the schema
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/internal/strict"
)

// Document is one decoded document and where everything in it stands.
type Document[T any] struct {
	*strict.Decoder
	Spec T
}

// Reader reads files into a Config.
type Reader struct {
	FS       fs.FS
	Config   *Config
	problems Problems
	Decoders []*strict.Decoder
	kinds    []string        // that may stand here
	others   []formatVersion // instead of those of the format: for tests
	Broken   bool            // a document could not be read at all: what refers to it is not checked
}

func (l *Reader) fail(file string, line, column int, fault Fault) {
	l.problems = append(l.problems, Problem{File: file, Line: max(line, 1), Column: max(column, 1), Fault: fault})
}

// Problems is everything found so far.
func (l *Reader) Problems() Problems {
	all := l.problems
	for _, d := range l.Decoders {
		all = append(all, d.Problems...)
	}
	return all
}

// source reads one YAML file. After a syntax error nothing more of that file can be read.
func (l *Reader) source(name string) {
	text, fault := l.Read(name, MaxSource)
	if fault != nil {
		l.Broken = true
		l.fail(name, 1, 1, *fault)
		return
	}
	l.text(name, text)
}

// text reads what a file says.
func (l *Reader) text(name string, text []byte) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var node yaml.Node
		err := DecodeNode(decoder, &node)
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			l.Broken = true
			l.Syntax(name, text, err)
			return
		}
		if len(node.Content) > 0 && node.Content[0].ShortTag() != "!!null" {
			l.document(name, node.Content[0])
		}
	}
}

// DecodeNode keeps the parser's own failures from ending the process.
func DecodeNode(decoder *yaml.Decoder, node *yaml.Node) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("yaml: %v", r)
		}
	}()
	return decoder.Decode(node)
}

// Read returns a file's bytes, or what is wrong with it.
func (l *Reader) Read(name string, limit int64) ([]byte, *Fault) {
	info, err := fs.Stat(l.FS, name)
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
		text, err = fs.ReadFile(l.FS, name)
	}
	if err != nil {
		return nil, &Fault{Code: "no-file", Message: fmt.Sprintf("%s cannot be read: %v", name, strict.Reason(err))}
	}
	l.Config.Files = append(l.Config.Files, name)
	if !utf8.Valid(text) {
		return nil, &Fault{Code: "not-text", Message: name + " is not UTF-8 text"}
	}
	return text, nil
}

// document decodes one document by its kind.
func (l *Reader) document(file string, node *yaml.Node) {
	d := &strict.Decoder{File: file}
	l.Decoders = append(l.Decoders, d)
	kind, ok := l.kind(d, node)
	if !ok {
		l.Broken = true
		return
	}
	switch kind {
	case "Application":
		for _, doc := range decoded[Application](l, d, node, nil) {
			l.addApplication(doc)
		}
	case "Service":
		l.Config.Services = decoded(l, d, node, l.Config.Services)
	case "Runtime":
		l.Config.Runtimes = decoded(l, d, node, l.Config.Runtimes)
	case "Protection":
		l.Config.Protections = decoded(l, d, node, l.Config.Protections)
	case "Extension":
		l.Config.Extensions = decoded(l, d, node, l.Config.Extensions)
	case installation:
		l.Config.Installations = decoded(l, d, node, l.Config.Installations)
	case library:
		l.Config.Libraries = decoded(l, d, node, l.Config.Libraries)
	}
}

// decoded adds the document of a node to those of its kind, unless it is too large to be checked.
func decoded[T any](l *Reader, d *strict.Decoder, node *yaml.Node, all []*Document[T]) []*Document[T] {
	doc := &Document[T]{Decoder: d}
	if !d.Decode(node, &doc.Spec) {
		l.Broken = true
		return all
	}
	return append(all, doc)
}

func (l *Reader) addApplication(doc *Document[Application]) {
	if first := l.Config.Application; first != nil {
		doc.Report("kind", Fault{
			Code: "duplicate-application", Message: fmt.Sprintf("there already is an Application at %s:%d", first.File, first.At("").Line),
			Expected: "one Application for this directory and those below",
		})
		return
	}
	l.Config.Application = doc
}

// kinds are those of an application; an Installation and a Library are known too, and stand elsewhere.
var kinds = []string{"Application", "Service", "Runtime", "Protection", "Extension"}

// kind reads a document's kind, and makes the document one of the present version of the format.
func (l *Reader) kind(d *strict.Decoder, node *yaml.Node) (string, bool) {
	var head struct{ apiVersion, kind *yaml.Node }
	for i := 0; node.Kind == yaml.MappingNode && i+1 < len(node.Content); i += 2 {
		switch node.Content[i].Value {
		case "apiVersion":
			head.apiVersion = node.Content[i+1]
		case "kind":
			head.kind = node.Content[i+1]
		}
	}
	if v := head.apiVersion; v != nil {
		if fault := l.unread(v.Value); fault != nil {
			d.Fail("apiVersion", v, *fault)
			return "", false
		}
	}
	if head.kind == nil {
		d.Fail("kind", node, Fault{Code: "missing-field", Message: `a document begins with "apiVersion" and "kind"; "kind" is missing`, Expected: strict.OneOf(l.kinds)})
		return "", false
	}
	kind := head.kind.Value
	if slices.Contains(l.kinds, kind) || kind == installation || kind == library {
		if head.apiVersion != nil {
			l.convert(kind, node, head.apiVersion)
		}
		return kind, true
	}
	fault := strict.Unknown("unknown-kind", fmt.Sprintf("there is no kind %q", strict.Clip(kind)), kind, l.kinds)
	d.Fail("kind", head.kind, fault)
	return "", false
}

// contents reads the files that services pass on to their runtime.
func (l *Reader) contents() {
	for _, s := range l.Config.Services {
		l.serviceFiles(s, "custom.files", s.Spec.Custom)
		for i, o := range s.Spec.PerReleaseChannel {
			l.serviceFiles(s, strict.Index("perReleaseChannel", i)+".custom.files", o.Custom)
		}
		for i, feed := range s.Spec.Feeds {
			if at := strict.Index("feeds", i) + ".file"; s.Has(at) && !s.Faulty(at) {
				l.serviceFile(s, at, feed.File)
			}
		}
	}
}

func (l *Reader) serviceFiles(s *Document[Service], at string, custom *ServiceCustom) {
	if custom == nil {
		return
	}
	seen := map[string]bool{}
	for i, name := range custom.Files {
		where := strict.Index(at, i)
		if clean := path.Clean(name); seen[clean] {
			s.Report(where, Fault{Code: "duplicate-name", Message: fmt.Sprintf("%s is listed twice", clean)})
			continue
		}
		seen[path.Clean(name)] = true
		l.serviceFile(s, where, name)
	}
}

// serviceFile reads a file that a service names.
func (l *Reader) serviceFile(s *Document[Service], where, name string) {
	clean, fault := LocalFile(name)
	full := path.Join(path.Dir(s.File), clean)
	if _, done := l.Config.Contents[full]; done && fault == nil {
		return
	}
	var text []byte
	if fault == nil {
		text, fault = l.Read(full, MaxAsset)
	}
	if fault != nil {
		s.Report(where, *fault)
		return
	}
	l.Config.Contents[full] = string(text)
}

// LocalFile cleans a path that must lead to the declaring file's directory or below.
func LocalFile(name string) (string, *Fault) {
	clean := path.Clean(name)
	if name == "" || path.IsAbs(name) || strings.Contains(name, `\`) || clean == ".." || strings.HasPrefix(clean, "../") || !fs.ValidPath(clean) {
		return "", &Fault{
			Code: "outside-directory", Message: fmt.Sprintf("%q leads out of the directory of this file", strict.Clip(name)),
			Expected: "a relative path with slashes, at or below it",
		}
	}
	return clean, nil
}

var (
	yamlLine   = regexp.MustCompile(`^line (\d+): `)
	yamlAnchor = regexp.MustCompile(`^unknown anchor '(.*)' referenced$`)
	// The parser's own complaints, as opposed to its scanner's, name the line before.
	lineBefore = regexp.MustCompile(`^did not find expected (<|node|'|key)|^found (undefined tag|duplicate|incompatible)`)
)

// Syntax words the YAML parser's error and takes the position from it as far as it says one.
func (l *Reader) Syntax(name string, source []byte, err error) {
	text, line, column := strings.TrimPrefix(err.Error(), "yaml: "), 1, 1
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		line, _ = strconv.Atoi(m[1])
		text = strings.TrimPrefix(text, m[0])
		if lineBefore.MatchString(text) {
			line++
		}
	}
	expected := ""
	if m := yamlAnchor.FindStringSubmatch(text); m != nil {
		line, column = positionOf(source, "*"+m[1])
		expected = "an anchor &" + m[1] + " earlier in the same document"
	}
	l.fail(name, line, column, Fault{Code: "syntax", Message: "this is no YAML: " + text, Expected: expected})
}

// positionOf is where a word first stands.
func positionOf(source []byte, word string) (line, column int) {
	before, _, _ := bytes.Cut(source, []byte(word))
	return bytes.Count(before, []byte("\n")) + 1, len(before) - bytes.LastIndexByte(before, '\n')
}

// Bounds of what is read.
const (
	MaxAsset  = 150_000   // bytes of one asset (D1)
	MaxSource = 1_000_000 // bytes of one YAML file, which may hold many documents
)

// Options change what Load accepts.
type Options struct {
	// AllowFake accepts runtimes of kind fake: tests and simulations.
	AllowFake bool
	// Runtimes are definitions of other applications that release channels may name.
	Runtimes []entities.RuntimeDefinition
	// RuntimesOf are the applications whose runtimes the installation lets others use (entities.Limits): a fleet has those of no other
	// one, beside its own.
	RuntimesOf []string
	// SecretDigest names content that holds Secrets; nil: its SHA-256 does, by which a guess can be confirmed.
	SecretDigest func(content []byte) string

	// Client fetches charts; the default one when nil.
	Client *http.Client

	// Published is the content of a library that was published under a name and a version. A *Fault says that there is none; nil:
	// nobody can be asked.
	Published func(name string, version int) (LibraryContent, error)
	// OpenDirectory opens the directory of a library, by its path from Dir; nil: none can be.
	OpenDirectory func(path string) (*os.Root, error)
	// Within is the directory outside of which no library is read; empty: they may lie beside the configuration, wherever that is.
	Within string
	// Run runs a command of the configuration; nil: none is run, and what has any is refused.
	Run func(Run) (Ran, error)
}

// Config is the configuration of one application as it was read.
type Config struct {
	Dir         string // absolute
	Options     Options
	Application *Document[Application]
	Services    []*Document[Service]
	Runtimes    []*Document[Runtime]
	Protections []*Document[Protection]
	Extensions  []*Document[Extension]
	// Installations and Libraries belong elsewhere: no application has one.
	Installations []*Document[Installation]
	Libraries     []*Document[Library]
	// Imported are the libraries whose parts are among the application's.
	Imported []Imported
	Contents map[string]string // of the files that services pass on, by path from dir
	Files    []string          // every file that was read, by path from Dir: what to watch
}

// Read reads the documents of a directory, and the files that services pass on.
func Read(fsys fs.FS, dir string, options Options) (*Reader, error) {
	l := &Reader{FS: fsys, kinds: kinds, Config: &Config{Dir: dir, Options: options, Contents: map[string]string{}}}
	names, err := SourceFiles(fsys)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if strings.HasSuffix(name, ".yml") {
			l.Broken = true
			l.fail(name, 1, 1, Fault{Code: "misnamed-file", Message: "a file of this name is not read", Expected: "the ending .yaml"})
			continue
		}
		l.source(name)
	}
	l.generate()
	l.contents()
	return l, l.imports()
}

// SourceFiles lists the configuration files in order of their path.
func SourceFiles(fsys fs.FS) ([]string, error) {
	var names []string
	err := fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil && name == ".":
			return err
		case err != nil:
			return fmt.Errorf("%s: %w", name, strict.Reason(err))
		case entry.IsDir() && name != "." && strings.HasPrefix(entry.Name(), "."):
			return fs.SkipDir
		case !entry.IsDir() && IsSource(entry.Name()):
			names = append(names, name)
		}
		return nil
	})
	slices.Sort(names)
	return names, err
}

// IsSource reports whether a file is meant to be configuration. One that ends in .yml is refused
// instead of being passed over in silence.
func IsSource(name string) bool {
	if stem, misnamed := strings.CutSuffix(name, ".yml"); misnamed {
		name = stem + ".yaml"
	}
	return name == "converge.yaml" || strings.HasSuffix(name, ".converge.yaml")
}

// Fault is what is wrong and what would have been right, without a position in a file.
type Fault = strict.Fault

// Problem is a Fault at a file, line, column and path.
type Problem = strict.Problem

// Problems is everything wrong with a configuration, sorted by position. It is an error; its text has
// one line for each problem.
type Problems = strict.Problems

//go:generate go run ../internal/schema/generate

//go:embed converge.schema.json
var jsonSchema []byte

// JSONSchema is the schema of the configuration, one for all kinds of documents, generated from the
// Go types. Editors find it by a first line such as
//
//	# yaml-language-server: $schema=./converge.schema.json
func JSONSchema() []byte { return bytes.Clone(jsonSchema) }
