// Package config contains the types of the configuration documents, one Go type for each kind, and reads the files of a directory into
// them. The types and their comments are the only description of the format: the strict decoder and the JSON Schema are derived from
// them.
//
// It checks each document separately; package compile checks the relations between documents. Of intent it imports the decoder only.
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

// Document is one decoded document with the positions of its values.
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
	kinds    []string        // allowed kinds
	others   []formatVersion // replaces the supported format versions, for tests
	Broken   bool            // a document could not be read at all: references to it are not checked
}

func (l *Reader) fail(file string, line, column int, fault Fault) {
	l.problems = append(l.problems, Problem{File: file, Line: max(line, 1), Column: max(column, 1), Fault: fault})
}

// Problems returns all problems found so far.
func (l *Reader) Problems() Problems {
	all := l.problems
	for _, d := range l.Decoders {
		all = append(all, d.Problems...)
	}
	return all
}

// source reads one YAML file. A syntax error ends the reading of that file.
func (l *Reader) source(name string) {
	text, fault := l.Read(name, MaxSource)
	if fault != nil {
		l.Broken = true
		l.fail(name, 1, 1, *fault)
		return
	}
	l.text(name, text)
}

// text reads the content of a file.
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

// DecodeNode decodes a node, and returns a panic of the parser as an error.
func DecodeNode(decoder *yaml.Decoder, node *yaml.Node) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("yaml: %v", r)
		}
	}()
	return decoder.Decode(node)
}

// Read returns the content of a file, or a fault.
func (l *Reader) Read(name string, limit int64) ([]byte, *Fault) {
	info, err := fs.Stat(l.FS, name)
	if err == nil && info.IsDir() {
		return nil, &Fault{Code: "no-file", Message: fmt.Sprintf("%s is a directory", name), Expected: "a file"}
	}
	if err == nil && !info.Mode().IsRegular() {
		return nil, &Fault{Code: "no-file", Message: fmt.Sprintf("%s is not a regular file", name), Expected: "a file"}
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

// decoded adds the document of a node to the documents of its kind, unless it exceeds the limits.
func decoded[T any](l *Reader, d *strict.Decoder, node *yaml.Node, all []*Document[T]) []*Document[T] {
	doc := &Document[T]{Decoder: d}
	if !d.Decode(node, &doc.Spec) {
		l.Broken = true
		return all
	}
	return append(all, doc)
}

// DuplicateApplication is the code of the problem that there is another application.
const DuplicateApplication = "duplicate-application"

func (l *Reader) addApplication(doc *Document[Application]) {
	if first := l.Config.Application; first != nil {
		doc.Report("kind", Fault{
			Code: DuplicateApplication, Message: fmt.Sprintf("there is already an Application at %s:%d", first.File, first.At("").Line),
			Expected: "one Application for this directory and those below",
		})
		return
	}
	l.Config.Application = doc
}

// kinds are the kinds of an application's documents. Installation and Library are valid in other places only.
var kinds = []string{"Application", "Service", "Runtime", "Protection", "Extension"}

// kind reads a document's kind, and converts the document to the current version of the format.
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
		if fault := l.unsupportedVersion(v.Value); fault != nil {
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

// contents reads the files that services pass to their runtime.
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
			Code: "outside-directory", Message: fmt.Sprintf("%q is not a path inside the directory of this file", strict.Clip(name)),
			Expected: "a relative path with slashes, at or below it",
		}
	}
	return clean, nil
}

var (
	yamlLine   = regexp.MustCompile(`^line (\d+): `)
	yamlAnchor = regexp.MustCompile(`^unknown anchor '(.*)' referenced$`)
	// The parser's own errors, in contrast to its scanner's, name the previous line.
	lineBefore = regexp.MustCompile(`^did not find expected (<|node|'|key)|^found (undefined tag|duplicate|incompatible)`)
)

// Syntax reports an error of the YAML parser, with its position if known.
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
	l.fail(name, line, column, Fault{Code: "syntax", Message: "invalid YAML: " + text, Expected: expected})
}

// positionOf returns the first position of a word.
func positionOf(source []byte, word string) (line, column int) {
	before, _, _ := bytes.Cut(source, []byte(word))
	return bytes.Count(before, []byte("\n")) + 1, len(before) - bytes.LastIndexByte(before, '\n')
}

// Limits of the input.
const (
	MaxAsset  = 150_000   // bytes of one asset (D1)
	MaxSource = 1_000_000 // bytes of one YAML file, which may contain many documents
)

// Options configure Load.
type Options struct {
	// AllowFake accepts runtimes of kind fake, for tests and simulations.
	AllowFake bool
	// Runtimes are definitions of other applications that release channels may name.
	Runtimes []entities.RuntimeDefinition
	// RuntimesOf lists the applications whose runtimes the installation shares (entities.Limits). A fleet only includes runtimes of
	// these applications and of its own.
	RuntimesOf []string
	// SecretDigest names content with Secrets. Nil: its SHA-256, which allows an attacker to confirm a guess.
	SecretDigest func(content []byte) string

	// Client fetches charts; the default one when nil.
	Client *http.Client

	// Published returns the content of a published library by name and version. A *Fault means that it does not exist. Nil: published
	// libraries cannot be queried.
	Published func(name string, version int) (LibraryContent, error)
	// OpenDirectory opens the directory of a library, by its path relative to Dir. Nil: local libraries are not available.
	OpenDirectory func(path string) (*os.Root, error)
	// Within is the only directory from which libraries are read; empty: they may be anywhere.
	Within string
	// RunCommand runs a command of the configuration. Nil: commands are not allowed, and a configuration with commands is rejected.
	RunCommand func(Command) (RunResult, error)
}

// Config is the loaded configuration of one application.
type Config struct {
	Dir         string // absolute
	Options     Options
	Application *Document[Application]
	Services    []*Document[Service]
	Runtimes    []*Document[Runtime]
	Protections []*Document[Protection]
	Extensions  []*Document[Extension]
	// Installations and Libraries are documents that are not valid in an application.
	Installations []*Document[Installation]
	Libraries     []*Document[Library]
	// Imported are the imported libraries, whose parts are merged into the application.
	Imported []Imported
	Contents map[string]string // of the files that services pass to their runtime, by path from Dir
	Files    []string          // every file that was read, by path from Dir, for file watchers
}

// Read reads the documents of a directory, and the files that services pass to their runtime.
func Read(fsys fs.FS, dir string, options Options) (*Reader, error) {
	l := &Reader{FS: fsys, kinds: kinds, Config: &Config{Dir: dir, Options: options, Contents: map[string]string{}}}
	names, err := SourceFiles(fsys)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if strings.HasSuffix(name, ".yml") {
			l.Broken = true
			l.fail(name, 1, 1, Fault{Code: "misnamed-file", Message: "a file with this name is not read", Expected: "the ending .yaml"})
			continue
		}
		l.source(name)
	}
	l.generate()
	l.contents()
	return l, l.imports()
}

// SourceFiles lists the configuration files sorted by path.
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

// IsSource reports whether a file is configuration. It includes files that end in .yml, which are rejected later and not silently
// ignored.
func IsSource(name string) bool {
	if stem, misnamed := strings.CutSuffix(name, ".yml"); misnamed {
		name = stem + ".yaml"
	}
	return name == "converge.yaml" || strings.HasSuffix(name, ".converge.yaml")
}

// Fault is a problem and the expected value, without a position in a file.
type Fault = strict.Fault

// Problem is a Fault at a file, line, column and path.
type Problem = strict.Problem

// Problems are all problems of a configuration, sorted by position. It is an error; its text has one line per problem.
type Problems = strict.Problems

//go:generate go run ../internal/schema/generate

//go:embed converge.schema.json
var jsonSchema []byte

// JSONSchema returns the schema of the configuration for all kinds of documents, generated from the Go types. Editors find it by a first
// line such as
//
//	# yaml-language-server: $schema=./converge.schema.json
func JSONSchema() []byte { return bytes.Clone(jsonSchema) }
