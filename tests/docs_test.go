package tests

import (
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/verb"
	"github.com/converge-engine/converge/intent/compile"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/runtimes/custom"
)

// The documentation is held to the code: its tables to what they repeat, its configurations to the loader, its links to
// what they lead to. `go test ./tests -run Docs -update` writes the status table anew.

var updateDocs = flag.Bool("update", false, "write the status table of docs/concepts.md anew")

const repository = ".."

// page is a Markdown file.
type page struct{ path, text string }

func readPage(t *testing.T, path string) page {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(repository, path))
	require.NoError(t, err)
	return page{path, string(data)}
}

// pages are all Markdown files of the repository; directories that begin with a dot hold none of ours.
func pages(t *testing.T) []page {
	t.Helper()
	var all []page
	require.NoError(t, filepath.WalkDir(repository, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && path != repository && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata") {
			return fs.SkipDir
		}
		if !entry.IsDir() && filepath.Ext(path) == ".md" {
			relative, err := filepath.Rel(repository, path)
			if err != nil {
				return err
			}
			all = append(all, readPage(t, relative))
		}
		return nil
	}))
	require.NotEmpty(t, all)
	return all
}

// block is a fenced block of a page.
type block struct {
	language, text string
	line           int
}

func (p page) blocks() []block {
	var all []block
	var open *block
	for i, line := range strings.Split(p.text, "\n") {
		language, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && open == nil:
			open = &block{language: language, line: i + 1}
		case fence:
			all, open = append(all, *open), nil
		case open != nil:
			open.text += line + "\n"
		}
	}
	return all
}

// prose is the page without its fenced blocks.
func (p page) prose() string {
	var b strings.Builder
	inside := false
	for line := range strings.Lines(p.text) {
		if strings.HasPrefix(line, "```") {
			inside = !inside
		} else if !inside {
			b.WriteString(line)
		}
	}
	return b.String()
}

// section is the text below a heading, up to the next one of its level or above.
func (p page) section(t *testing.T, heading string) string {
	t.Helper()
	_, text, found := strings.Cut(p.prose(), "\n"+heading+"\n")
	require.True(t, found, "%s: no %q", p.path, heading)
	level, _, _ := strings.Cut(heading, " ")
	if end := regexp.MustCompile(`(?m)^#{1,` + strconv.Itoa(len(level)) + `} `).FindStringIndex(text); end != nil {
		text = text[:end[0]]
	}
	return text
}

// tables reads the rows of all tables with that header.
func tables(t *testing.T, text, header string) (rows [][]string) {
	t.Helper()
	for strings.Contains("\n"+text, "\n"+header+"\n") {
		rows = append(rows, table(t, text, header)...)
		_, text, _ = strings.Cut("\n"+text, "\n"+header+"\n")
	}
	return rows
}

// table reads the rows of the first table with that header, cells without surrounding space.
func table(t *testing.T, text, header string) [][]string {
	t.Helper()
	_, rest, found := strings.Cut("\n"+text, "\n"+header+"\n")
	require.True(t, found, "no table %s", header)
	var rows [][]string
	for line := range strings.Lines(rest) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, cells)
	}
	require.Greater(t, len(rows), 1, header)
	return rows[1:] // not the line below the header
}

var quotedRE = regexp.MustCompile("`([^`]+)`")

// quoted lists what a text has between backticks.
func quoted(text string) []string {
	var all []string
	for _, m := range quotedRE.FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	return all
}

// sorted is the distinct elements in order: the comparisons here are of sets.
func sorted(all []string) []string { return slices.Compact(slices.Sorted(slices.Values(all))) }

func TestDocsStatusTable(t *testing.T) {
	const begin, end = "<!-- status table: held to entities.StatusTable by tests/docs_test.go -->\n", "<!-- end -->"
	p := readPage(t, "docs/concepts.md")
	head, rest, found := strings.Cut(p.text, begin)
	require.True(t, found)
	have, tail, found := strings.Cut(rest, end)
	require.True(t, found)
	want := "| status | when | ends by | wait |\n| --- | --- | --- | --- |\n"
	for _, row := range entities.StatusTable() {
		exit := strconv.Itoa(row.Exit)
		if row.Exit == entities.ExitWaiting {
			exit = "–"
		}
		want += fmt.Sprintf("| `%s` | %s | %s | %s |\n", row.Status, row.When, orDash(row.EndsBy), exit)
	}
	if *updateDocs {
		require.NoError(t, os.WriteFile(filepath.Join(repository, p.path), []byte(head+begin+want+end+tail), 0o644))
		return
	}
	require.Equal(t, want, have, "%s: run go test ./tests -run Docs -update", p.path)
}

func orDash(text string) string {
	if text == "" {
		return "–"
	}
	return text
}

// The names of the protocol are public: what is added to the code is added to its page.
func TestDocsProtocol(t *testing.T) {
	p := readPage(t, "docs/protocol.md")
	groups := constantGroups(t, "entities/protocol/names.go")

	rows := table(t, p.section(t, "## Verbs of a service"), "| verb | payload beside `by`, `requestId`, `reason` | answer |")
	payloads := map[string]any{}
	for _, row := range verb.Service() {
		payloads[row.Name] = reflect.ValueOf(row.Payload()).Elem().Interface()
	}
	verbs := []string{protocol.Publish}
	for _, row := range rows {
		for _, name := range quoted(row[0]) {
			verbs = append(verbs, name)
			require.Contains(t, payloads, name)
			require.ElementsMatch(t, ownFields(payloads[name]), quoted(row[1]), "%s: payload of %s", p.path, name)
		}
	}
	require.Equal(t, sorted(groups["Verbs"]), sorted(verbs), p.path)
	for section, rows := range map[string][]verb.Row{"## Verbs of an application": verb.Application(), "## Verbs of a runtime": verb.Runtime(), "## Verbs of the installation": verb.Installation()} {
		for _, row := range rows {
			require.Contains(t, p.section(t, section), "`"+row.Name+"`")
		}
	}

	var attributes, activities []string
	for _, row := range table(t, p.section(t, "## Search attributes"), "| name | type | value |") {
		attributes = append(attributes, quoted(row[0])...)
	}
	require.Equal(t, sorted(groups["Search"]), sorted(attributes), p.path)
	for _, row := range table(t, p.section(t, "## Activities"), "| name | kind | does |") {
		activities = append(activities, quoted(row[0])...)
	}
	require.Equal(t, sorted(groups["Activities"]), sorted(activities), p.path)
	for _, group := range []string{"Workflow", "Queries"} {
		require.NotEmpty(t, groups[group], group)
		for _, name := range groups[group] {
			require.Contains(t, quoted(p.prose()), name, p.path)
		}
	}
}

// ownFields lists the JSON fields that a struct has beside those of an act and of embedded structs.
func ownFields(v any) []string {
	var names []string
	if _, act := v.(protocol.RequestMeta); act {
		return nil
	}
	for f := range typeFields(reflect.TypeOf(v)) {
		if !f.Anonymous {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			names = append(names, name)
		}
	}
	return names
}

func typeFields(t reflect.Type) func(func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for i := range t.NumField() {
			if !yield(t.Field(i)) {
				return
			}
		}
	}
}

// constantGroups returns the texts of a file's constants, by the first word of their group's comment.
func constantGroups(t *testing.T, path string) map[string][]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(repository, path), nil, parser.ParseComments|parser.SkipObjectResolution)
	require.NoError(t, err)
	groups := map[string][]string{}
	for _, decl := range file.Decls {
		group, ok := decl.(*ast.GenDecl)
		if !ok || group.Tok != token.CONST || group.Doc == nil {
			continue
		}
		word := strings.Trim(strings.Fields(group.Doc.Text())[0], ":,.")
		for _, spec := range group.Specs {
			for _, value := range spec.(*ast.ValueSpec).Values {
				text, err := strconv.Unquote(value.(*ast.BasicLit).Value)
				require.NoError(t, err)
				groups[word] = append(groups[word], text)
			}
		}
	}
	return groups
}

// The codes of `converge admin doctor` are in the documentation.
func TestDocsDoctorCodes(t *testing.T) {
	var coded, given []string
	for _, value := range constants(t, "worker/deployment") {
		if value.Kind() == constant.String && regexp.MustCompile(`^[a-z]+(-[a-z]+)+$`).MatchString(constant.StringVal(value)) {
			coded = append(coded, constant.StringVal(value))
		}
	}
	for _, row := range table(t, readPage(t, "docs/observing.md").section(t, "## What doctor finds"), "| code | means |") {
		given = append(given, quoted(row[0])...)
	}
	require.ElementsMatch(t, coded, given)
}

// The exit codes are in the help texts and in the documentation, in the same words.
func TestDocsExitCodes(t *testing.T) {
	source, err := os.ReadFile(filepath.Join(repository, "cmd/converge/exit.go"))
	require.NoError(t, err)
	_, footer, found := strings.Cut(string(source), "const exitFooter = `Exit status: ")
	require.True(t, found)
	footer, _, _ = strings.Cut(footer, "`")
	var given [][]string
	for _, m := range regexp.MustCompile(`(\d+) ([^,.]+)`).FindAllStringSubmatch(strings.Join(strings.Fields(footer), " "), -1) {
		given = append(given, m[1:])
	}
	var coded []string
	for name, value := range constants(t, "cmd/converge") {
		if strings.HasPrefix(name, "exit") && value.Kind() == constant.Int {
			coded = append(coded, value.String())
		}
	}
	for _, name := range []string{"Done", "Error", "Failed", "TimedOut", "Person"} {
		coded = append(coded, constants(t, "entities/outcome")[name].String())
	}
	var codes []string
	for _, row := range given {
		codes = append(codes, row[0])
	}
	require.ElementsMatch(t, coded, codes, "the codes of the program are those of its footer")

	p := readPage(t, "docs/reference.md")
	var written [][]string
	for _, row := range table(t, p.section(t, "## Exit codes"), "| code | means | for example |") {
		written = append(written, row[:2])
	}
	require.Equal(t, given, written, p.path)
}

// constants evaluates the constants of a package that are literals or arithmetic of them.
func constants(t *testing.T, dir string) map[string]constant.Value {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(repository, dir, "*.go"))
	require.NoError(t, err)
	values := map[string]constant.Value{}
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, decl := range file.Decls {
			group, ok := decl.(*ast.GenDecl)
			if !ok || group.Tok != token.CONST {
				continue
			}
			for _, spec := range group.Specs {
				spec := spec.(*ast.ValueSpec)
				for i, value := range spec.Values {
					if v, err := types.Eval(token.NewFileSet(), nil, token.NoPos, types.ExprString(value)); err == nil {
						values[spec.Names[i].Name] = v.Value
					}
				}
			}
		}
	}
	return values
}

// The limits in the documentation are those of the code.
func TestDocsLimits(t *testing.T) {
	folders := map[string]string{
		"config": "intent/config", "sources": "intent/sources", "bundle": "intent/bundle", "incarnation": "intent/incarnation",
		"compile": "intent/compile", "store": "intent/store", "state": "entities/state", "verb": "entities/verb", "view": "entities/view",
		"strict": "intent/internal/strict", "custom": "runtimes/custom",
	}
	checked := 0
	for _, row := range table(t, readPage(t, "docs/reference.md").section(t, "## Limits"), "| what | limit | beyond it | in the code |") {
		names := quoted(row[3])
		if len(names) == 0 {
			continue
		}
		folder, name, _ := strings.Cut(names[0], ".")
		if at, nested := folders[folder]; nested {
			folder = at
		}
		value, ok := constants(t, folder)[name]
		require.True(t, ok, "%s: no constant %s", row[0], names[0])
		limit := strings.Fields(strings.ReplaceAll(row[1], ",", ""))
		number, err := strconv.ParseInt(limit[0], 10, 64)
		require.NoError(t, err, row[0])
		if len(limit) > 1 && limit[1] == "KiB" {
			number <<= 10
		}
		require.Equal(t, value.String(), strconv.FormatInt(number, 10), row[0])
		checked++
	}
	require.Greater(t, checked, 10)
}

var (
	linkRE    = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	headingRE = regexp.MustCompile(`(?m)^#+ (.*)$`)
)

// Every relative link leads somewhere, and every #anchor to a heading.
func TestDocsLinks(t *testing.T) {
	for _, p := range pages(t) {
		for _, m := range linkRE.FindAllStringSubmatch(p.prose(), -1) {
			link, err := url.Parse(m[1])
			require.NoError(t, err, "%s: %s", p.path, m[1])
			if link.Scheme != "" {
				continue
			}
			target := p.path
			if link.Path != "" {
				target = filepath.Join(filepath.Dir(p.path), filepath.FromSlash(link.Path))
			}
			if _, err := os.Stat(filepath.Join(repository, target)); err != nil {
				t.Errorf("%s: link to %s: %v", p.path, m[1], err)
				continue
			}
			if link.Fragment != "" && !slices.Contains(anchors(readPage(t, target)), link.Fragment) {
				t.Errorf("%s: link to %s: no such heading", p.path, m[1])
			}
		}
	}
}

// anchors are the headings as links name them: lower case, punctuation left out, hyphens for spaces.
func anchors(p page) []string {
	var all []string
	for _, m := range headingRE.FindAllStringSubmatch(p.prose(), -1) {
		text := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		all = append(all, strings.ReplaceAll(text, " ", "-"))
	}
	return all
}

// Every configuration that is shown whole loads and compiles. Files that it lists are made.
func TestDocsConfigurationsLoad(t *testing.T) {
	checked := 0
	for _, p := range pages(t) {
		for _, b := range p.blocks() {
			if b.language != "yaml" || !strings.Contains(b.text, "apiVersion: converge/v1") {
				continue
			}
			dir := t.TempDir()
			makeFiles(t, dir, b.text)
			for _, beside := range p.blocks() { // a block that begins with its name is a file
				if name, ok := strings.CutPrefix(strings.Split(beside.text, "\n")[0], "# "); ok && filepath.Ext(name) == ".yaml" {
					require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(beside.text), 0o600))
				}
			}
			require.NoError(t, os.WriteFile(filepath.Join(dir, "converge.yaml"), []byte(b.text), 0o600))
			if strings.Contains(b.text, "kind: Installation") {
				_, err := compile.Rules(os.DirFS(dir), "converge.yaml")
				require.NoError(t, err, "%s:%d", p.path, b.line)
				continue
			}
			if strings.Contains(b.text, "kind: Library") {
				_, err := compile.Library(os.DirFS(dir))
				require.NoError(t, err, "%s:%d", p.path, b.line)
				continue
			}
			config, err := compile.Load(dir)
			require.NoError(t, err, "%s:%d", p.path, b.line)
			_, err = compile.Compile(config)
			require.NoError(t, err, "%s:%d", p.path, b.line)
			checked++
		}
	}
	require.GreaterOrEqual(t, checked, 4)
}

// makeFiles makes the files that the services of a configuration pass on.
func makeFiles(t *testing.T, dir, text string) {
	t.Helper()
	for decoder := yaml.NewDecoder(strings.NewReader(text)); ; {
		var document struct {
			Custom struct {
				Files []string `yaml:"files"`
			} `yaml:"custom"`
		}
		if decoder.Decode(&document) != nil {
			return // the end, or a mistake that loading tells
		}
		for _, name := range document.Custom.Files {
			path := filepath.Join(dir, filepath.FromSlash(name))
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
			require.NoError(t, os.WriteFile(path, []byte("{}\n"), 0o600))
		}
	}
}

// Each kind's page lists all of its fields, with the default of each.
func TestDocsKindsListTheirFields(t *testing.T) {
	var schema struct {
		Definitions map[string]definition `json:"$defs"`
	}
	require.NoError(t, json.Unmarshal(config.JSONSchema(), &schema))
	for kind, path := range map[string]string{"Application": "application", "Service": "service", "Runtime": "runtime", "Protection": "protection", "Extension": "extension", "Installation": "installation", "Library": "library"} {
		want := map[string]string{}
		fieldsOf(schema.Definitions, kind, "", want)
		p := readPage(t, "docs/spec/"+path+".md")
		have := map[string]string{}
		for _, row := range tables(t, p.section(t, "## Fields"), "| field | type | default | meaning |") {
			have[quoted(row[0])[0]] = strings.Trim(row[2], "`")
		}
		require.Equal(t, want, have, p.path)
	}
	p := readPage(t, "docs/spec/protection.md")
	after, before := map[string]string{}, map[string]string{}
	fieldsOf(schema.Definitions, "PostconditionUse", "", after)
	fieldsOf(schema.Definitions, "ProtectionUse", "", before)
	for _, row := range table(t, p.section(t, "## Postconditions"), "| field | type | default | meaning |") {
		before[quoted(row[0])[0]] = strings.Trim(row[2], "`")
	}
	for field, otherwise := range after {
		require.Equal(t, before[field], otherwise, field)
	}
	for kind, path := range map[string]string{"Protection": "protection", "Extension": "extension"} {
		want, shared := map[string]string{}, map[string]string{}
		fieldsOf(schema.Definitions, kind+"Use", "", want)
		fieldsOf(schema.Definitions, kind, "", shared)
		p := readPage(t, "docs/spec/"+path+".md")
		for _, row := range tables(t, p.section(t, "## Where it is used"), "| field | type | default | meaning |") {
			field := quoted(row[0])[0]
			require.Equal(t, want[field], strings.Trim(row[2], "`"), "%s: %s", p.path, field)
			delete(want, field)
		}
		for field := range want { // what only the document lists
			require.Contains(t, shared, field, p.path)
		}
	}
}

// A table of fields is short enough to be read.
func TestDocsTablesOfFieldsAreShort(t *testing.T) {
	const header, longest = "| field | type | default | meaning |", 40
	found := 0
	for _, p := range pages(t) {
		for text := p.prose(); ; found++ {
			_, rest, more := strings.Cut(text, "\n"+header+"\n")
			if !more {
				break
			}
			require.LessOrEqual(t, len(table(t, header+"\n"+rest, header)), longest, p.path)
			text = rest
		}
	}
	require.Greater(t, found, 20)
}

// The commands of plans have one table: what all have, and what only those of some places do.
func TestDocsListTheFieldsOfPlans(t *testing.T) {
	var schema struct {
		Definitions map[string]definition `json:"$defs"`
	}
	require.NoError(t, json.Unmarshal(config.JSONSchema(), &schema))
	have := map[string]map[string]string{}
	rows := table(t, readPage(t, "docs/plans.md").section(t, "## Commands"), "| field | type | default | of | meaning |")
	for place, kind := range map[string]string{"plan.dns": "CommandUse", "plan.before[]": "FirstStepUse", "plan.after[]": "StepUse", "reconcilers[]": "ReconcilerUse", "aggregator.sync": "SyncUse"} {
		want := map[string]string{}
		fieldsOf(schema.Definitions, kind, "", want)
		for field := range want {
			if strings.Contains(field, ".") {
				delete(want, field)
			}
		}
		have[place] = map[string]string{}
		for _, row := range rows {
			if row[3] == "all" || slices.Contains(quoted(row[3]), place) {
				have[place][quoted(row[0])[0]] = strings.Trim(row[2], "`")
			}
		}
		require.Equal(t, want, have[place], place)
	}
}

type definition struct {
	Ref        string                `json:"$ref"`
	Items      *definition           `json:"items"`
	Properties map[string]definition `json:"properties"`
	Required   []string              `json:"required"`
	Default    any                   `json:"default"`
}

// fieldsOf collects the paths of a type's fields, and what stands under "default" for each.
func fieldsOf(all map[string]definition, name, prefix string, into map[string]string) {
	for _, field := range slices.Sorted(maps.Keys(all[name].Properties)) {
		d := all[name].Properties[field]
		path := prefix + field
		switch {
		case slices.Contains(all[name].Required, field):
			into[path] = "required"
		case d.Default != nil:
			into[path] = fmt.Sprint(d.Default)
		default:
			into[path] = "–"
		}
		ref, below := d.Ref, path+"."
		if d.Items != nil {
			ref, below = d.Items.Ref, path+"[]."
		}
		if ref != "" && !strings.HasSuffix(ref, "Use") { // what is used in many places has a page of its own
			fieldsOf(all, strings.TrimPrefix(ref, "#/$defs/"), below, into)
		}
	}
}

// Errors that the documentation quotes are such that the loader really gives.
func TestDocsQuoteRealErrors(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(repository, "intent/compile/testdata/malformed/*.txtar"))
	require.NoError(t, err)
	var real strings.Builder
	for _, path := range files {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		real.Write(data)
	}
	placed := regexp.MustCompile(`^\S+\.yaml:\d+:\d+: `)
	checked := 0
	for _, p := range pages(t) {
		for _, b := range p.blocks() {
			for line := range strings.Lines(b.text) {
				if placed.MatchString(line) {
					require.Contains(t, real.String(), "\n"+line, "%s:%d", p.path, b.line)
					checked++
				}
			}
		}
	}
	require.Greater(t, checked, 10)
}

// What the commands of a custom runtime are given and may answer.
func TestDocsCustomRuntime(t *testing.T) {
	p := readPage(t, "docs/spec/custom-runtime.md")
	at := slices.IndexFunc(p.blocks(), func(b block) bool { return b.language == "json" })
	require.GreaterOrEqual(t, at, 0)
	document := p.blocks()[at].text
	objects, err := custom.ParseDocument([]byte(document))
	require.NoError(t, err)
	var shown struct {
		Objects []map[string]any `json:"objects"`
	}
	require.NoError(t, json.Unmarshal([]byte(document), &shown))
	fields := slices.DeleteFunc(ownFields(entities.Object{}), func(name string) bool {
		return slices.Contains([]string{"orphaned", "suspended", "until", "steerable", "asDeclared", "foreign"}, name) // no command can say them
	})
	require.ElementsMatch(t, fields, slices.Collect(maps.Keys(shown.Objects[0])), "the example has every field")
	require.Equal(t, entities.ObjectSucceeded, objects[0].Status)

	var variables, codes []string
	for _, row := range table(t, p.section(t, "## Environment"), "| variable | is |") {
		variables = append(variables, quoted(row[0])...)
	}
	given := found(t, `"((?:PVN|CONVERGE)_[A-Z_]*[A-Z])["=]`, "runtimes/custom/env.go", "runtimes/custom/call.go")
	require.Equal(t, sorted(append(given, "CONVERGE_ADDRESS_NAMESPACE")), sorted(variables), p.path)

	clusters := readPage(t, "docs/kubernetes.md") // has those that only an API server gives
	for _, page := range []page{p, clusters} {
		for _, row := range table(t, page.section(t, "## When a reading fails"), "| code | means |") {
			codes = append(codes, quoted(row[0])...)
		}
	}
	known := found(t, `(?:ReadingError\{Code: |Code[A-Z][A-Za-z]+ += )"([a-z-]+)"`,
		"runtimes/*.go", "runtimes/custom/*.go", "activities/*.go", "workflows/*.go", "entities/object.go")
	require.Equal(t, sorted(known), sorted(codes), "%s and %s", p.path, clusters.path)
}

// found lists what a pattern's group matches in files that are no tests.
func found(t *testing.T, pattern string, globs ...string) []string {
	t.Helper()
	var all []string
	for _, glob := range globs {
		files, err := filepath.Glob(filepath.Join(repository, glob))
		require.NoError(t, err)
		for _, path := range files {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(data), -1) {
				all = append(all, m[1])
			}
		}
	}
	require.NotEmpty(t, all, pattern)
	return all
}
