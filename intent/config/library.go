package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/internal/strict"
)

// Library contains release channels, protections and types of addons that several applications share. It is in its own directory, with
// the documents of kind Protection that it refers to, and is published once under its name and version.
type Library struct {
	Header
	// Its version. Changed content needs a new version.
	Version LibraryVersion `json:"version" jsonschema:"minimum=1,maximum=1000000"`
	// A description of the library.
	Description string `json:"description,omitempty"`
	// Release channels of every application that imports it.
	ReleaseChannels []ReleaseChannel `json:"releaseChannels,omitempty"`
	// Protections of all channels of every application that imports it.
	Protections []ProtectionUse `json:"protections,omitempty"`
	// Types of addons, in every application that imports it.
	AddonTypes []AddonType `json:"addonTypes,omitempty"`
}

// Import adds the content of a library to the application.
type Import struct {
	// The name of a Library.
	Name Name `json:"name"`
	// Its exact version.
	Version LibraryVersion `json:"version" jsonschema:"minimum=1,maximum=1000000"`
	// The SHA-256 of its content, as printed when it is published.
	Digest LibraryDigest `json:"digest,omitempty"`
	// Its directory, relative to that of this file, to read it from there. If that version is also published, it must have the same
	// content.
	Path string `json:"path,omitempty"`
}

// LibraryVersion is the version of a library, counted from one.
type LibraryVersion int

const maxLibraryVersion = 1_000_000

// Check rejects invalid versions.
func (v LibraryVersion) Check() *Fault {
	return strict.FaultUnless(v >= 1 && v <= maxLibraryVersion, "bad-value", "invalid library version %q", fmt.Sprint(int(v)), "a whole number, at least 1")
}

// LibraryDigest names the content of a library: its SHA-256 in hex.
type LibraryDigest string

// Pattern returns the pattern for the JSON schema.
func (LibraryDigest) Pattern() string { return `^[0-9a-f]{64}$` }

// Check rejects invalid digests.
func (d LibraryDigest) Check() *Fault {
	right := len(d) == 64 && strings.Trim(string(d), "0123456789abcdef") == ""
	return strict.FaultUnless(right, "bad-value", "invalid library digest %q", string(d), "64 hexadecimal digits, which publishing prints")
}

// MaxLibrary bounds the content of a library in bytes, MaxLibraryFiles its number of files.
const (
	MaxLibrary      = 150_000
	MaxLibraryFiles = 100
)

// LibraryContent is the content of a library: its files unchanged. The digest of this value is its name.
type LibraryContent struct {
	Name    string            `json:"name"`
	Version int               `json:"version"`
	Files   map[string]string `json:"files"` // by name, without directories
}

// Digest returns the SHA-256 of the content, in hex.
func (l LibraryContent) Digest() string { return entities.DigestOf(l) }

// Imported is an imported library.
type Imported struct {
	Name    string
	Version int
	Digest  string
	Path    string // of its directory, from that of the application; empty: it is published
}

// library is the kind of a document that belongs to no application.
const library = "Library"

// LibraryDocuments are the documents of a library.
type LibraryDocuments struct {
	*Document[Library]
	Protections []*Document[Protection]
	Content     LibraryContent
}

// ReadLibrary reads the library of a directory: converge.yaml and *.converge.yaml, without subdirectories. It is nil if the problems
// prevent that.
func ReadLibrary(fsys fs.FS) (*LibraryDocuments, Problems, error) { return readLibrary(fsys, "") }

func readLibrary(fsys fs.FS, under string) (*LibraryDocuments, Problems, error) {
	entries, err := fs.ReadDir(fsys, ".")
	if err != nil {
		return nil, nil, fmt.Errorf("read the library: %w", strict.Reason(err))
	}
	l := &Reader{FS: fsys, Config: &Config{}}
	content, size := LibraryContent{Files: map[string]string{}}, 0
	for _, entry := range entries {
		name := entry.Name()
		if entry.IsDir() || !IsSource(name) {
			continue
		}
		text, fault := l.Read(name, MaxLibrary)
		size += len(text)
		switch {
		case fault == nil && strings.HasSuffix(name, ".yml"):
			fault = &Fault{Code: "misnamed-file", Message: "a file with this name is not read", Expected: "the ending .yaml"}
		case fault == nil && (size > MaxLibrary || len(content.Files) == MaxLibraryFiles):
			fault = tooLarge()
		}
		if fault != nil {
			l.fail(path.Join(under, name), 1, 1, *fault)
			return nil, l.problems, nil
		}
		content.Files[name] = string(text)
	}
	doc, problems := ParseLibrary(content, under)
	return doc, problems, nil
}

func tooLarge() *Fault {
	return &Fault{Code: "too-large", Message: "the library is too large", Expected: fmt.Sprintf("at most %d bytes in %d files", MaxLibrary, MaxLibraryFiles)}
}

// ParseLibrary parses the content of a library strictly and within the limits, from any origin. The prefix under is added to the names
// of its files in problems. The result is nil if the problems prevent parsing.
func ParseLibrary(content LibraryContent, under string) (*LibraryDocuments, Problems) {
	l := &Reader{kinds: []string{library, "Protection"}, Config: &Config{}}
	at, size := path.Join(under, "converge.yaml"), 0
	for _, name := range slices.Sorted(maps.Keys(content.Files)) {
		size += len(content.Files[name])
		if !IsSource(name) || strings.ContainsAny(name, `/\`) || strings.HasSuffix(name, ".yml") {
			l.fail(at, 1, 1, Fault{Code: "misnamed-file", Message: fmt.Sprintf("the library has a file %q", strict.Clip(name)), Expected: "converge.yaml or NAME.converge.yaml"})
			return nil, l.problems
		}
	}
	if size > MaxLibrary || len(content.Files) > MaxLibraryFiles {
		l.fail(at, 1, 1, *tooLarge())
		return nil, l.problems
	}
	for _, name := range slices.Sorted(maps.Keys(content.Files)) {
		l.text(path.Join(under, name), []byte(content.Files[name]))
	}
	doc := l.oneLibrary(at)
	if doc == nil {
		return nil, l.Problems()
	}
	is := LibraryContent{string(doc.Spec.Name), int(doc.Spec.Version), content.Files}
	if content.Name != "" && (content.Name != is.Name || content.Version != is.Version) {
		doc.Report("name", Fault{Code: "library-differs", Message: fmt.Sprintf("this is library %s %d", is.Name, is.Version), Expected: fmt.Sprintf("%s %d", content.Name, content.Version)})
	}
	l.rejectCommands(doc)
	return &LibraryDocuments{Document: doc, Protections: l.Config.Protections, Content: is}, l.Problems()
}

// oneLibrary returns the document of kind Library.
func (l *Reader) oneLibrary(file string) *Document[Library] {
	for _, stray := range l.Config.Installations {
		stray.Report("kind", Fault{Code: "misplaced", Message: "an Installation cannot be part of a library", Expected: "a separate file in another directory"})
	}
	all := l.Config.Libraries
	switch {
	case len(all) == 0 && !l.Broken:
		l.fail(file, 1, 1, Fault{Code: "no-library", Message: "there is no Library in this directory", Expected: "one document of kind Library"})
		return nil
	case len(all) == 0:
		return nil
	}
	for _, second := range all[1:] {
		second.Report("kind", Fault{Code: "duplicate-name", Message: "there is already a Library at " + all[0].Location(""), Expected: "one Library in a directory"})
	}
	return all[0]
}

// rejectCommands rejects commands, because they run in the directory of an application.
func (l *Reader) rejectCommands(doc *Document[Library]) {
	for i, channel := range doc.Spec.ReleaseChannels {
		at := strict.Index("releaseChannels", i)
		rejectCommandsOfUses(doc, at+".protections", channel.Protections)
		if channel.Rollout != nil && len(channel.Rollout.Command) > 0 {
			doc.Report(at+".rollout.command", Fault{Code: "bad-value", Message: "it runs a command, which belongs to an application", Expected: "steps, or the channel in the application"})
		}
		for n, p := range channel.Postconditions {
			rejectCommandKind(doc.Decoder, strict.Index(at+".postconditions", n), p.ProtectionKind)
		}
		if len(channel.Extensions) > 0 {
			doc.Report(at+".extensions", Fault{Code: "bad-value", Message: "extensions run commands, which belong to an application", Expected: "the extensions in the application"})
		}
	}
	rejectCommandsOfUses(doc, "protections", doc.Spec.Protections)
	for _, p := range l.Config.Protections {
		rejectCommandKind(p.Decoder, "", p.Spec.ProtectionKind)
	}
}

func rejectCommandsOfUses(doc *Document[Library], at string, all []ProtectionUse) {
	for i, use := range all {
		rejectCommandKind(doc.Decoder, strict.Index(at, i), use.ProtectionKind)
	}
}

func rejectCommandKind(d *strict.Decoder, at string, kind ProtectionKind) {
	for _, k := range kind.Kinds() {
		if k != entities.CheckCommand && k != entities.CheckJob && k != entities.CheckTask {
			continue
		}
		d.Report(strict.Field(at, string(k)), Fault{
			Code: "bad-value", Message: "it runs a command, which belongs to an application", Expected: "another kind, or the protection in the application",
		})
	}
}

// imports adds the imports of the application after its own content.
func (l *Reader) imports() error {
	app := l.Config.Application
	if app == nil {
		return nil
	}
	names := l.ownNames(app)
	for i, wanted := range app.Spec.Imports {
		at := strict.Index("imports", i)
		twice := slices.ContainsFunc(app.Spec.Imports[:i], func(o Import) bool { return o.Name == wanted.Name })
		if twice && !app.Faulty(at) {
			app.Report(at+".name", Fault{Code: "duplicate-name", Message: fmt.Sprintf("library %q is imported twice", string(wanted.Name)), Expected: "one version of it"})
		}
		if twice || app.Faulty(at) {
			l.Broken = true
			continue
		}
		doc, err := l.imported(app, at, wanted)
		if err != nil {
			return err
		}
		if doc == nil {
			l.Broken = true // references to it are not checked
			continue
		}
		l.graft(app, at, doc, names)
		l.Config.Imported = append(l.Config.Imported, Imported{string(wanted.Name), int(wanted.Version), doc.Content.Digest(), wanted.Path})
	}
	return nil
}

// imported reads one library; nil: it is not available, which is reported.
func (l *Reader) imported(app *Document[Application], at string, wanted Import) (*LibraryDocuments, error) {
	content, missing, err := l.published(wanted)
	if err != nil {
		return nil, err
	}
	var doc *LibraryDocuments
	var problems Problems
	switch {
	case wanted.Path != "":
		doc, problems = l.readLocalLibrary(app, at, wanted.Path)
	case missing != nil:
		app.Report(at, *missing)
	default:
		doc, problems = ParseLibrary(content, fmt.Sprintf("%s@%d", wanted.Name, wanted.Version))
	}
	if l.problems = append(l.problems, problems...); len(problems) > 0 || doc == nil {
		return nil, nil //nolint:nilnil // reported
	}
	fault := Fault{Code: "library-differs"}
	digest, is := doc.Content.Digest(), fmt.Sprintf("library %s %d", doc.Content.Name, doc.Content.Version)
	switch {
	case is != fmt.Sprintf("library %s %d", wanted.Name, wanted.Version):
		fault.Message, fault.Expected = "the content is "+is, fmt.Sprintf("%s %d", wanted.Name, wanted.Version)
	case wanted.Digest != "" && string(wanted.Digest) != digest:
		fault.Message, fault.Expected = fmt.Sprintf("the content of %s is %s", is, digest), string(wanted.Digest)
	case missing == nil && content.Digest() != digest:
		fault.Message, fault.Expected = is+" is published with other content than this directory has", "the same content, or another version"
	default:
		return doc, nil
	}
	app.Report(at, fault)
	return nil, nil //nolint:nilnil // reported
}

// published returns a published library, or why it does not exist.
func (l *Reader) published(wanted Import) (content LibraryContent, missing *Fault, err error) {
	fetch := l.Config.Options.Published
	if fetch == nil {
		return content, &Fault{
			Code: UnknownLibrary, Message: fmt.Sprintf("library %s %d cannot be looked up, because no store is given", wanted.Name, wanted.Version),
			Expected: `--store or CONVERGE_STORE, or "path" to its directory`,
		}, nil
	}
	content, err = fetch(string(wanted.Name), int(wanted.Version))
	if errors.As(err, &missing) {
		return content, missing, nil
	}
	if err != nil {
		err = fmt.Errorf("look up library %s %d: %w", wanted.Name, wanted.Version, err)
	}
	return content, nil, err
}

// UnknownLibrary is the code of an import of a library that is not published, or that cannot be queried.
const UnknownLibrary = "unknown-library"

// readLocalLibrary reads a library from its own directory.
func (l *Reader) readLocalLibrary(app *Document[Application], at, name string) (*LibraryDocuments, Problems) {
	clean := path.Join(path.Dir(app.File), name)
	fault := Fault{
		Code: "no-library", Message: fmt.Sprintf("%q cannot be read", strict.Clip(name)),
		Expected: "the directory of a Library, relative to that of this file, with slashes",
	}
	if path.IsAbs(name) || strings.Contains(name, `\`) || l.Config.Options.OpenDirectory == nil {
		app.Report(at+".path", fault)
		return nil, nil
	}
	root, err := l.Config.Options.OpenDirectory(clean)
	if err == nil {
		defer root.Close() // read-only
		var doc *LibraryDocuments
		var problems Problems
		if doc, problems, err = readLibrary(root.FS(), clean); err == nil {
			l.Config.Files = append(l.Config.Files, filesOf(doc, clean)...)
			return doc, problems
		}
	}
	fault.Message += ": " + strict.Reason(err).Error()
	app.Report(at+".path", fault)
	return nil, nil
}

// filesOf returns the files of a library, with paths from the directory of the application.
func filesOf(doc *LibraryDocuments, under string) []string {
	if doc == nil {
		return nil
	}
	return strict.Map(slices.Sorted(maps.Keys(doc.Content.Files)), func(name string) string { return path.Join(under, name) })
}

// ownNames returns the names that an application declares itself, with their positions.
func (l *Reader) ownNames(app *Document[Application]) map[string]string {
	names := map[string]string{}
	for i, c := range app.Spec.ReleaseChannels {
		names[channelKey(c)] = app.Location(strict.Index("releaseChannels", i))
	}
	for i, p := range app.Spec.Protections {
		names[useKey(p)] = app.Location(strict.Index("protections", i))
	}
	for i, a := range app.Spec.AddonTypes {
		names[addonTypeKey(a)] = app.Location(strict.Index("addonTypes", i))
	}
	for _, p := range l.Config.Protections {
		names[protectionKey(p)] = p.Location("name")
	}
	return names
}

func channelKey(c ReleaseChannel) string {
	return fmt.Sprintf("the release channel %q", string(c.Name))
}

func protectionKey(p *Document[Protection]) string {
	return fmt.Sprintf("the Protection %q", string(p.Spec.Name))
}

func addonTypeKey(a AddonType) string {
	return fmt.Sprintf("the addon type %q", string(a.Name))
}

func useKey(p ProtectionUse) string {
	return fmt.Sprintf("the protection %q of all channels", string(cmp.Or(p.Name, p.Ref)))
}

// graft adds the parts of a library to the application, except for names that already exist: nothing is replaced.
func (l *Reader) graft(app *Document[Application], at string, from *LibraryDocuments, names map[string]string) {
	own := map[string]string{}
	free := func(key, place string) bool {
		if duplicate, is := names[key]; is {
			app.Report(at, Fault{
				Code: "duplicate-name", Message: fmt.Sprintf("library %s %d declares %s at %s, and so does %s", from.Content.Name, from.Content.Version, key, place, duplicate),
				Expected: "another name for one of them",
			})
			return false
		}
		own[key] = place
		return true
	}
	for i, c := range from.Spec.ReleaseChannels {
		if path := strict.Index("releaseChannels", i); free(channelKey(c), from.Location(path)) {
			app.Graft(strict.Index("releaseChannels", len(app.Spec.ReleaseChannels)), from.Decoder, path)
			app.Spec.ReleaseChannels = append(app.Spec.ReleaseChannels, c)
		}
	}
	for i, p := range from.Spec.Protections {
		if path := strict.Index("protections", i); free(useKey(p), from.Location(path)) {
			app.Graft(strict.Index("protections", len(app.Spec.Protections)), from.Decoder, path)
			app.Spec.Protections = append(app.Spec.Protections, p)
		}
	}
	for i, a := range from.Spec.AddonTypes {
		if path := strict.Index("addonTypes", i); free(addonTypeKey(a), from.Location(path)) {
			app.Graft(strict.Index("addonTypes", len(app.Spec.AddonTypes)), from.Decoder, path)
			app.Spec.AddonTypes = append(app.Spec.AddonTypes, a)
		}
	}
	for _, p := range from.Protections {
		if free(protectionKey(p), p.Location("name")) {
			l.Config.Protections = append(l.Config.Protections, p)
		}
	}
	maps.Copy(names, own)
}
