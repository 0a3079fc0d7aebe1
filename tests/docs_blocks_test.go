package tests

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Readers believe what the blocks of a page show. So a block is one of these:
//
//   - `console`, commands and their output: a test runs it with stage.Console or stage.Only;
//   - `text`, output without its command: a test compares it with stage.Text, or is named in comparedElsewhere;
//   - without a language, commands only: TestDocumentedCommandsAreRun finds the test of each verb and flag;
//   - a language, for the content of a file.

// comparedElsewhere are `text` blocks, by page and heading, that a test compares which cannot import the stage.
var comparedElsewhere = map[string]string{
	"docs/protocol.md, A token for one act":              "TestNonceOfAnAct_G3",
	"docs/validation.md, A canary and its control group": "TestCompare_D26_A20",
}

// executed are the pages, and the headings of pages, whose blocks tests name: "docs/howto.md" of stage.Console, "docs/gates.md, Deletion" of
// stage.Only and stage.Text.
func executed(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	require.NoError(t, filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, call := range callsOfStage(file) {
			page, err := filepath.Rel("..", filepath.Join(filepath.Dir(path), call[1]))
			if err != nil {
				return err
			}
			all[strings.Join(append([]string{call[0] + " " + filepath.ToSlash(page)}, call[2:]...), ", ")] = true
		}
		return nil
	}))
	require.Greater(t, len(all), 20)
	return all
}

// callsOfStage lists the calls of Console, Only and Text in a file: the function and its texts, which are literals or constants of the file.
func callsOfStage(file *ast.File) (calls [][]string) {
	constants := map[string]string{}
	ast.Inspect(file, func(node ast.Node) bool {
		if spec, ok := node.(*ast.ValueSpec); ok && len(spec.Names) == 1 && len(spec.Values) == 1 {
			if text, ok := literal(spec.Values[0], nil); ok {
				constants[spec.Names[0].Name] = text
			}
		}
		return true
	})
	ast.Inspect(file, func(node ast.Node) bool {
		call, ok := node.(*ast.CallExpr)
		if !ok || len(call.Args) < 2 || !selects(call.Fun, map[string]string{"stage": "stage"}, "stage", "Console", "Only", "Text") {
			return true
		}
		texts := []string{call.Fun.(*ast.SelectorExpr).Sel.Name}
		for _, argument := range call.Args[1:] {
			if text, ok := literal(argument, constants); ok {
				texts = append(texts, text)
			}
		}
		if len(texts) == len(call.Args) {
			calls = append(calls, texts)
		}
		return true
	})
	return calls
}

func literal(node ast.Expr, constants map[string]string) (string, bool) {
	switch node := node.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(node.Value)
		return text, err == nil
	case *ast.Ident:
		text, ok := constants[node.Name]
		return text, ok
	}
	return "", false
}

var (
	// command begins a line of a block without a language, or continues one.
	command = regexp.MustCompile(`^([A-Z_]+=("[^"]*"|\S+) )*(export [A-Z_]+=.*|(converge|converge-\w+|go|make|openssl|docker|sha256sum|base64|kubectl|temporal|tcld|curl|sops|git|cat|cp|rm|cd|echo|head|mkdir|tar|install|sh|apt-get|systemctl|runuser|userdel|helm)( .*)?)$`)
	// periodic begins a line of a crontab.
	periodic = regexp.MustCompile(`^([0-9*]+ +){5}`)
	// misplaced is an error with its place, which TestDocsQuoteRealErrors finds among those that the loader gives.
	misplaced = regexp.MustCompile(`^\S+\.yaml:\d+:\d+: `)
	// content is the language of a file.
	content = []string{"yaml", "json", "go", "toml", "sh", "mermaid"}
)

// notExecuted lists the blocks of a page which show what no test runs or compares.
func (p page) notExecuted(by map[string]bool) (findings []string) {
	heading := ""
	fenced := map[int]block{}
	for _, b := range p.blocks() {
		fenced[b.line] = b
	}
	inside := false
	for i, line := range strings.Split(p.text, "\n") {
		if strings.HasPrefix(line, "```") {
			inside = !inside
		}
		if !inside && strings.HasPrefix(line, "#") {
			heading = strings.TrimSpace(strings.TrimLeft(line, "#"))
		}
		if b, opens := fenced[i+1]; opens {
			if problem := p.problemOf(b, heading, by); problem != "" {
				findings = append(findings, fmt.Sprintf("%s:%d: %s", p.path, b.line, problem))
			}
		}
	}
	return findings
}

func (p page) problemOf(b block, heading string, by map[string]bool) string {
	place := p.path + ", " + heading
	lines := strings.Split(strings.TrimSpace(strings.ReplaceAll(b.text, "\\\n", "")), "\n")
	switch {
	case b.language == "console" && !by["Console "+p.path] && !by["Only "+place]:
		return "no test runs it: run it with stage.Only(t, page, " + strconv.Quote(heading) + ")"
	case b.language == "text" && !by["Text "+place] && comparedElsewhere[place] == "" && slices.ContainsFunc(lines, func(l string) bool { return !misplaced.MatchString(l) }):
		return "no test compares it: compare it with stage.Text(t, page, " + strconv.Quote(heading) + ")"
	case b.language == "":
		for _, l := range lines {
			if !command.MatchString(strings.TrimSpace(l)) && !periodic.MatchString(l) {
				return "not a command: " + l + "; output is `console` below its command, or `text`"
			}
		}
	case b.language != "console" && b.language != "text" && !slices.Contains(content, b.language):
		return "unknown language " + b.language
	}
	return ""
}

// Each block of README, docs and examples that shows commands with output, or output, is executed or compared.
func TestDocsBlocksAreExecuted(t *testing.T) {
	t.Parallel()
	by, tests := executed(t), declaredTests(t)
	var findings []string
	blocks := 0
	for _, p := range pages(t) {
		if strings.HasPrefix(p.path, "docs/cli/") {
			continue // the help texts of the program, to which TestCommandPages holds them
		}
		findings = append(findings, p.notExecuted(by)...)
		for _, b := range p.blocks() {
			if b.language == "console" || b.language == "text" {
				blocks++
			}
		}
	}
	require.Empty(t, findings, strings.Join(findings, "\n"))
	require.Greater(t, blocks, 60)
	for place, name := range comparedElsewhere {
		path, _, _ := strings.Cut(place, ",")
		require.Contains(t, tests[name], filepath.Base(path), "%s compares nothing of it", name)
	}
}

// declaredTests are the files of the tests of the repository, by the names of the tests.
func declaredTests(t *testing.T) map[string]string {
	t.Helper()
	declared, all := regexp.MustCompile(`(?m)^func (Test\w+)\(`), map[string]string{}
	require.NoError(t, filepath.WalkDir(repository, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, found := range declared.FindAllStringSubmatch(string(text), -1) {
			all[found[1]] = string(text)
		}
		return err
	}))
	return all
}

// What is refused is shown here: each kind of block that no test executes.
func TestDocsBlocksThatNothingExecutes(t *testing.T) {
	t.Parallel()
	by := map[string]bool{"Console docs/run.md": true, "Only docs/some.md, Run": true, "Text docs/some.md, Compared": true}
	const runs, prints = "```console\n$ converge version\nconverge 1\n```\n", "```text\nv1 runs\n```\n"
	require.Empty(t, page{"docs/run.md", "# Any\n" + runs + "## Other\n" + runs}.notExecuted(by))
	require.Empty(t, page{"docs/some.md", "# Run\n" + runs + "## Compared\n" + prints + "```text\na.yaml:1:2: wrong\n```\n```yaml\na: b\n```\n```\nconverge status \\\n  shop\n```\n"}.notExecuted(by))
	for text, finding := range map[string]string{
		"# Not run\n" + runs:                    "docs/some.md:2: no test runs it",
		"# Run\n## Deeper\n" + runs:             "docs/some.md:3: no test runs it",
		"# Run\n" + prints:                      "docs/some.md:2: no test compares it",
		"# A\n```\n$ converge version\n```\n":   "docs/some.md:2: not a command: $ converge version",
		"# A\n```\nconverge version\nv1\n```\n": "docs/some.md:2: not a command: v1",
		"# A\n```shell\nls\n```\n":              "docs/some.md:2: unknown language shell",
	} {
		findings := page{"docs/some.md", text}.notExecuted(by)
		require.Len(t, findings, 1, text)
		require.Contains(t, findings[0], finding)
	}
}
