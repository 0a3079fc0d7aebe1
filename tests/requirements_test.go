package tests

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"
)

// docs/requirements.md is held to the tests, and the tests to it. A requirement is cited in one form: at the end of a
// test's name, each id after an underscore (TestJobAndBalancer_D20_D21), or at the beginning of a story's title, each id
// before a space (A16 A23 an apply in flight ends). A story's title is the first line of an archive (txtar) that is one
// story, and the name of each file in an archive of stories.

var (
	idRE       = regexp.MustCompile(`[A-I][0-9]{1,2}`)
	nameRE     = regexp.MustCompile(`^((?:Test|Fuzz|Benchmark|Example)\w*?)((?:_[A-I][0-9]{1,2})*)$`)
	gluedRE    = regexp.MustCompile(`[A-I][0-9]{1,2}(?:[A-Z_]|$)`)
	leadingRE  = regexp.MustCompile(`^(?:[A-I][0-9]{1,2} )+`)
	sentenceRE = regexp.MustCompile(`^(?:[A-I][0-9]{1,2} )+[a-z][^\n]*$`)
	otherRE    = regexp.MustCompile(`^[A-I][0-9]{1,2}(?:[ ,:]| and |–|$)`)
)

func TestRequirements(t *testing.T) {
	r := readRequirements(t)
	cited, findings := citations(t, r.ids)
	require.Empty(t, findings, "how to cite: CONTRIBUTING.md, Requirements")
	require.Greater(t, len(cited), 50)
	for _, id := range r.ids {
		if where, listed := r.open[id], cited[id] != ""; where == "" && !listed {
			t.Errorf("no test cites %s: cite it where it is shown, or list it in docs/requirements.md under its section's heading", id)
		} else if where != "" && listed {
			t.Errorf("docs/requirements.md lists %s under %q, but %s cites it: take it off the list", id, where, cited[id])
		}
	}
}

// requirements are those of docs/requirements.md, in order; open are the listed ones that no test cites, with the words
// under which they are listed.
type requirements struct {
	ids  []string
	open map[string]string
}

func readRequirements(t *testing.T) requirements {
	t.Helper()
	r := requirements{open: map[string]string{}}
	letter := ""
	for line := range strings.Lines(readPage(t, "docs/requirements.md").text) {
		heading, words := regexp.MustCompile(`^## ([A-I])\. `).FindStringSubmatch(line), regexp.MustCompile(`^(Not (?:built|shown) yet): ([^.]*)\.`).FindStringSubmatch(line)
		if heading != nil {
			letter = heading[1]
		}
		if words != nil {
			for id := range spread(words[2]) {
				require.Equal(t, letter, id[:1], "%s is listed in another section", id)
				r.open[id] = words[1]
			}
		}
		if m := regexp.MustCompile(`^- \*\*(\w+)\*\* \S`).FindStringSubmatch(line); m != nil {
			require.Equal(t, letter, m[1][:1], "%s is in another section", m[1])
			r.ids = append(r.ids, m[1])
		}
	}
	require.NotEmpty(t, r.ids)
	want := 0
	for i, id := range r.ids {
		if want++; i > 0 && r.ids[i-1][0] != id[0] {
			want = 1
		}
		require.Equal(t, fmt.Sprintf("%c%d", id[0], want), id, "ids go up by one")
	}
	require.Subset(t, r.ids, slices.Collect(maps.Keys(r.open)), "what is listed is there")
	return r
}

// spread gives the ids of a list such as "B3, D23–D28".
func spread(list string) map[string]bool {
	all := map[string]bool{}
	for item := range strings.SplitSeq(list, ",") {
		from, to, _ := strings.Cut(strings.TrimSpace(item), "–")
		to = cmp.Or(to, from)
		first, _ := strconv.Atoi(from[1:])
		last, _ := strconv.Atoi(to[1:])
		for n := first; n <= last; n++ {
			all[fmt.Sprintf("%c%d", from[0], n)] = true
		}
	}
	return all
}

// citations returns where each id is cited, one place each, and what is wrong with how.
func citations(t *testing.T, known []string) (cited map[string]string, findings []string) {
	t.Helper()
	cited = map[string]string{}
	for path := range repositoryFiles(t, "_test.go", ".txtar") {
		if strings.HasSuffix(path, ".txtar") && !strings.Contains(path, "testdata/") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(repository, path))
		require.NoError(t, err)
		ids, wrong := cites(path, data)
		for _, w := range wrong {
			findings = append(findings, path+": "+w)
		}
		for id, place := range ids {
			switch {
			case slices.Contains(known, id):
				cited[id] = path + ": " + place
			default:
				findings = append(findings, fmt.Sprintf("%s: %s cites %s, which docs/requirements.md does not have", path, place, id))
			}
		}
	}
	slices.Sort(findings)
	return cited, findings
}

// repositoryFiles are the files that end so, relative to the repository; directories that begin with a dot hold none.
func repositoryFiles(t *testing.T, endings ...string) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	require.NoError(t, filepath.WalkDir(repository, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && path != repository && strings.HasPrefix(entry.Name(), ".") {
			return fs.SkipDir
		}
		if !entry.IsDir() && slices.ContainsFunc(endings, func(e string) bool { return strings.HasSuffix(path, e) }) {
			relative, err := filepath.Rel(repository, path)
			if err != nil {
				return err
			}
			all[filepath.ToSlash(relative)] = true
		}
		return nil
	}))
	require.NotEmpty(t, all)
	return all
}

// cites returns which ids a file cites, and where, and what of it has another form.
func cites(path string, data []byte) (ids map[string]string, wrong []string) {
	ids = map[string]string{}
	note := func(list, place string) {
		for _, id := range idRE.FindAllString(list, -1) {
			ids[id] = place
		}
	}
	if strings.HasSuffix(path, ".txtar") {
		for _, title := range titles(data) {
			leading := leadingRE.FindString(title)
			note(leading, strconv.Quote(title))
			if otherRE.MatchString(title[len(leading):]) {
				wrong = append(wrong, fmt.Sprintf("the title %q: expected ids, each before a space, then words", title))
			}
		}
		return ids, wrong
	}
	file, err := parser.ParseFile(token.NewFileSet(), path, data, parser.ParseComments)
	if err != nil {
		return nil, []string{err.Error()}
	}
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || f.Recv != nil {
			continue
		}
		m := nameRE.FindStringSubmatch(f.Name.Name)
		if m == nil {
			continue
		}
		note(m[2], m[0])
		if gluedRE.MatchString(m[1]) {
			wrong = append(wrong, m[0]+": expected ids at the end, each after an underscore")
		}
		if otherRE.MatchString(f.Doc.Text()) {
			wrong = append(wrong, m[0]+": its comment begins with an id, which belongs into its name")
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		literal, ok := n.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			return true
		}
		if text, err := strconv.Unquote(literal.Value); err == nil && sentenceRE.MatchString(text) {
			wrong = append(wrong, fmt.Sprintf("%s: it begins with an id, which belongs into the test's name", literal.Value))
		}
		return true
	})
	return ids, wrong
}

// titles are those of an archive's stories: its first line, and the names of files that no file could have.
func titles(data []byte) []string {
	archive := txtar.Parse(data)
	first, _, _ := strings.Cut(string(archive.Comment), "\n")
	all := []string{first}
	for _, f := range archive.Files {
		if strings.Contains(f.Name, " ") {
			all = append(all, f.Name)
		}
	}
	return all
}

// The rules can fail, and let pass what has the form.
func TestRequirementRulesCanFail(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ path, text, ids, wrong string }{
		{"x_test.go", "func TestJob_D20_D21() {}", "D20 D21", ""},
		{"x_test.go", "func FuzzFind_C6() {}", "C6", ""},
		{"x_test.go", "func TestS3() {}\nfunc shownA1() {}", "", ""},
		{"x_test.go", "func TestJobD21() {}", "", "TestJobD21: expected ids at the end, each after an underscore"},
		{"x_test.go", "func TestHTTPA20() {}", "", "TestHTTPA20: expected ids at the end, each after an underscore"},
		{"x_test.go", "func TestA7Hanging() {}", "", "TestA7Hanging: expected ids at the end, each after an underscore"},
		{"x_test.go", "func TestJob_D20_And_D21() {}", "D21", "TestJob_D20_And_D21: expected ids at the end, each after an underscore"},
		{"x_test.go", "// D21: a wait in a circle.\nfunc TestJob() {}", "", "TestJob: its comment begins with an id, which belongs into its name"},
		{"x_test.go", `func TestJob() { t.Run("D21 a circle") }`, "", `"D21 a circle": it begins with an id, which belongs into the test's name`},
		{"x.txtar", "A16 A23 an apply in flight ends\n-- story --\nA1, A2: x\n", "A16 A23", ""},
		{"x.txtar", "People.\n-- A16 a paused channel --\n-- A18 cancel --\n-- no id --\n", "A16 A18", ""},
		{"x.txtar", "A16, A23: an apply in flight ends\n", "", `the title "A16, A23: an apply in flight ends": expected ids, each before a space, then words`},
		{"x.txtar", "People.\n-- A16: a paused channel --\n", "", `the title "A16: a paused channel": expected ids, each before a space, then words`},
	} {
		if strings.HasSuffix(c.path, ".go") {
			c.text = "package x\n" + c.text
		}
		ids, wrong := cites(c.path, []byte(c.text))
		require.Equal(t, c.ids, strings.Join(slices.Sorted(maps.Keys(ids)), " "), c.text)
		require.Equal(t, c.wrong, strings.Join(wrong, "\n"), c.text)
	}
}
