package compile_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/intent/compile"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/tests/intenttest"
)

const shared = `releaseChannels:
- {name: staging, labels: {tier: staging}, runtimes: [{name: r}]}
- name: prod
  labels: {tier: prod}
  runtimes: [{name: r}]
  preconditions: [{releaseChannelStable: {releaseChannel: staging}}, {manualApproval: {minApprovers: 2}}]
  protections: [{ref: errors, parameters: {max: 0.05}}]
protections:
- {name: freeze, allowedTimes: {timeZone: Europe/Paris, freezes: [{from: "2026-12-20", to: "2027-01-03"}]}}
`

const errorsRatio = `---
apiVersion: converge/v1
kind: Protection
name: errors
parameters: [{name: max, type: float}]
prometheus: {url: "http://prometheus:9090", query: "errors{service='${{ service }}'}", lessThan: "${{ params.max }}"}
`

const (
	applicationHead = "apiVersion: converge/v1\nkind: Application\nname: shop\n"
	libraryHead     = "apiVersion: converge/v1\nkind: Library\nname: org\nversion: 3\n"
	webAndRuntime   = "---\n{apiVersion: converge/v1, kind: Service, name: web, custom: {}}\n---\n{apiVersion: converge/v1, kind: Runtime, name: r, fake: {}}\n"
)

// orgLibrary is what is published as org 3.
func orgLibrary(t *testing.T) config.LibraryContent {
	t.Helper()
	content, err := compile.Library(fstest.MapFS{"converge.yaml": {Data: []byte(libraryHead + shared)}, "errors.converge.yaml": {Data: []byte(errorsRatio)}})
	require.NoError(t, err)
	return content
}

func importing(t *testing.T, text string, content config.LibraryContent) (*compile.Compiled, error) {
	t.Helper()
	options := config.Options{AllowFake: true, Published: func(name string, version int) (config.LibraryContent, error) {
		require.Equal(t, content.Name, name)
		require.Equal(t, content.Version, version)
		return content, nil
	}}
	loaded, err := compile.LoadFS(fstest.MapFS{"converge.yaml": {Data: []byte(applicationHead + text + webAndRuntime)}}, "/config", options)
	if err != nil {
		return nil, err
	}
	compiled, err := compile.Compile(loaded)
	require.NoError(t, err)
	again, err := compile.Compile(loaded)
	require.NoError(t, err)
	require.Equal(t, compiled.Incarnation.Hash(), again.Incarnation.Hash())
	return compiled, nil
}

// What an application imports is what services get that it says itself, to the byte; and the incarnation names the library by its
// whole digest.
func TestImportEqualsInlineDeclaration_G2(t *testing.T) {
	content := orgLibrary(t)
	imported, err := importing(t, "imports: [{name: org, version: 3}]\n", content)
	require.NoError(t, err)
	written, err := importing(t, shared+errorsRatio, content)
	require.NoError(t, err)
	specs, err := imported.Specs()
	require.NoError(t, err)
	same, err := written.Specs()
	require.NoError(t, err)
	require.Equal(t, same, specs)
	require.Equal(t, written.Checks("web"), imported.Checks("web"))
	require.Len(t, imported.Checks("web"), 3)

	intenttest.Golden(t, "library.incarnation.json", intenttest.Indented(t, imported.Incarnation.Bytes()))
	require.Len(t, content.Digest(), 64)
	pinned, err := importing(t, "imports: [{name: org, version: 3, digest: "+content.Digest()+"}]\n", content)
	require.NoError(t, err)
	require.Equal(t, imported.Incarnation.Hash(), pinned.Incarnation.Hash())
}

// A library read from its directory gives the same as the one that was published; what it was published as differs from what is
// there now, and is refused.
func TestImportByPathEqualsPublishedLibrary_G2(t *testing.T) {
	dir := t.TempDir()
	content := orgLibrary(t)
	for name, text := range content.Files {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "org"), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "org", name), []byte(text), 0o600))
	}
	app := filepath.Join(dir, "shop")
	require.NoError(t, os.MkdirAll(app, 0o700))
	text := applicationHead + "imports: [{name: org, version: 3, path: ../org}]\n" + webAndRuntime
	require.NoError(t, os.WriteFile(filepath.Join(app, "converge.yaml"), []byte(text), 0o600))
	options := config.Options{AllowFake: true}
	loaded, err := compile.LoadWith(app, options)
	require.NoError(t, err)
	require.Equal(t, []string{"../org/converge.yaml", "../org/errors.converge.yaml", "converge.yaml"}, loaded.Files)
	compiled, err := compile.Compile(loaded)
	require.NoError(t, err)
	published, err := importing(t, "imports: [{name: org, version: 3}]\n", content)
	require.NoError(t, err)
	require.Equal(t, published.Incarnation.Hash(), compiled.Incarnation.Hash())

	content.Files["converge.yaml"] += "# another\n"
	options.Published = func(string, int) (config.LibraryContent, error) { return content, nil }
	_, err = compile.LoadWith(app, options)
	require.ErrorContains(t, err, "converge.yaml:4:11: imports[0]: library org 3 is published with other content than this directory has; expected the same content, or another version [library-differs]")

	require.NoError(t, os.Remove(filepath.Join(dir, "org", "errors.converge.yaml")))
	require.NoError(t, os.Symlink(filepath.Join(app, "converge.yaml"), filepath.Join(dir, "org", "errors.converge.yaml")))
	_, err = compile.LoadWith(app, config.Options{AllowFake: true})
	require.ErrorContains(t, err, "../org/errors.converge.yaml:1:1: errors.converge.yaml cannot be read: path escapes from parent [no-file]")
}

// Content of a store that is no library of that name and version is refused, whatever the store says of it.
func TestImportVerifiesContentDigest_G1(t *testing.T) {
	for want, change := range map[string]func(*config.LibraryContent){
		"the content is library org 4; expected org 3": func(c *config.LibraryContent) {
			c.Name, c.Files["converge.yaml"] = "", strings.Replace(c.Files["converge.yaml"], "version: 3", "version: 4", 1)
		},
		"org@3/converge.yaml:3:7: name: this is library or 3; expected org 3 [library-differs]": func(c *config.LibraryContent) {
			c.Files["converge.yaml"] = strings.Replace(c.Files["converge.yaml"], "name: org", "name: or", 1)
		},
		`org@3/converge.yaml:1:1: the library has a file "../converge.yaml"; expected converge.yaml or NAME.converge.yaml [misnamed-file]`: func(c *config.LibraryContent) {
			c.Files["../converge.yaml"] = ""
		},
		`org@3/converge.yaml:1:1: the library is too large; expected at most 150000 bytes in 100 files [too-large]`: func(c *config.LibraryContent) {
			c.Files["big.converge.yaml"] = strings.Repeat("#", config.MaxLibrary)
		},
		"org@3/converge.yaml:1:1: there is no Library in this directory; expected one document of kind Library [no-library]": func(c *config.LibraryContent) {
			c.Files = nil
		},
		`org@3/a.converge.yaml:1:33: kind: there is no kind "Runtime"; expected one of Library, Protection [unknown-kind]`: func(c *config.LibraryContent) {
			c.Files["a.converge.yaml"] = "{apiVersion: converge/v1, kind: Runtime, name: mine, fake: {}}"
		},
		"org@3/errors.converge.yaml:7:1: invalid YAML": func(c *config.LibraryContent) { c.Files["errors.converge.yaml"] += "\t}" },
	} {
		content := orgLibrary(t)
		change(&content)
		_, err := func() (*compile.Compiled, error) {
			loaded, err := compile.LoadFS(fstest.MapFS{"converge.yaml": {Data: []byte(applicationHead + "imports: [{name: org, version: 3}]\n" + webAndRuntime)}}, "/config",
				config.Options{AllowFake: true, Published: func(string, int) (config.LibraryContent, error) { return content, nil }})
			if err != nil {
				return nil, err
			}
			return compile.Compile(loaded)
		}()
		require.ErrorContains(t, err, want)
	}
}

// A library is checked by itself, but for the runtimes, which applications have.
func TestMalformedLibraries_G2(t *testing.T) {
	for text, want := range map[string]string{
		libraryHead: "converge.yaml:1:1: this library is empty; expected releaseChannels, protections, addonTypes, or documents of kind Protection [missing-field]",
		libraryHead + "releaseChannels: [{name: prod, runtimes: [{name: x}], preconditions: [{releaseChannelStable: {releaseChannel: stagging}}]}]\n": `converge.yaml:5:111: releaseChannels[0].preconditions[0].releaseChannelStable.releaseChannel: no release channel "stagging"; expected prod [unknown-channel]`,
		libraryHead + "releaseChannels: [{name: prod, runtimes: [{name: x}], protections: [{ref: mine}]}]\n":                                          `converge.yaml:5:75: releaseChannels[0].protections[0].ref: there is no protection "mine"; expected a document of that kind and name [unknown-protection]`,
		libraryHead + "protections: [{name: a, always: {verdict: PASS}}, {name: a, always: {verdict: PASS}}]\n":                                       `converge.yaml:5:51: protections[1]: two protections here are named "a"; expected another "name" for one of them [duplicate-name]`,
		libraryHead + "addonTypes: [{name: example.com/oncall, schema: {required: team}}]\n":                                                          `converge.yaml:5:60: addonTypes[0].schema.required: got string, want array; expected a JSON Schema without references [bad-value]`,
		"": "converge.yaml:1:1: there is no Library in this directory; expected one document of kind Library [no-library]",
		strings.Replace(libraryHead, "3", "0", 1):     `converge.yaml:4:10: version: invalid library version "0"; expected a whole number, at least 1 [bad-value]`,
		strings.Replace(libraryHead, "3", "1.2.3", 1): `converge.yaml:4:10: version: this is the text "1.2.3"; expected a whole number [wrong-type]`,
	} {
		_, err := compile.Library(fstest.MapFS{"converge.yaml": {Data: []byte(text)}})
		require.ErrorContains(t, err, want)
	}
}

// FuzzLibrary: content from anywhere never panics; what is wrong has a position, a code and a sentence; and what loads compiles, to the
// same bytes each time.
func FuzzLibrary(f *testing.F) {
	f.Add([]byte(libraryHead + shared + errorsRatio))
	f.Add([]byte(libraryHead + "protections: [{name: a, always: {verdict: PASS}}]\nimports: []\n"))
	f.Add([]byte("a: &a [*a]\n<<: *a\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 20_000 {
			t.Skip()
		}
		content := config.LibraryContent{Files: map[string]string{"converge.yaml": string(text)}}
		if _, err := compile.Library(fstest.MapFS{"converge.yaml": {Data: text}}); err != nil {
			wantPositions(t, err)
		}
		files := fstest.MapFS{"a/x.converge.yaml": {Data: []byte(applicationHead + "imports: [{name: org, version: 3}]\n" + webAndRuntime)}}
		loaded, err := compile.LoadFS(files, "/config", config.Options{AllowFake: true, Published: func(string, int) (config.LibraryContent, error) { return content, nil }})
		if err != nil {
			wantPositions(t, err)
			return
		}
		wantSame(t, loaded)
	})
}
