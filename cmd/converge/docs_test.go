package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// shown is a command that a page shows, in a block or between backticks.
type shown struct {
	page  string
	words []string
	block bool // a whole command line, without placeholders
}

func (s shown) String() string { return strings.Join(s.words, " ") }

// files returns the texts of the repository's files with one of the endings.
func files(t *testing.T, endings ...string) map[string]string {
	t.Helper()
	root := filepath.Join("..", "..")
	all := map[string]string{}
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && path != root && strings.HasPrefix(entry.Name(), ".") {
			return fs.SkipDir
		}
		if entry.IsDir() || !slices.ContainsFunc(endings, func(ending string) bool { return strings.HasSuffix(path, ending) }) {
			return nil
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel(root, path)
		all[filepath.ToSlash(name)] = string(text)
		return err
	}))
	require.NotEmpty(t, all)
	return all
}

var (
	fencedRE = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```")
	inlineRE = regexp.MustCompile("`([^`\n]+)`")
	// programRE begins what is a command; other lines of blocks are output.
	programRE    = regexp.MustCompile(`^(export [A-Z_]+=|[A-Z_]+=\S+ |cd \S+ && )*(converge|go|make|kubectl|docker|temporal|tcld|curl|sops|argocd|flux|helm) `)
	assignmentRE = regexp.MustCompile(`^[A-Z_]+=`)
	fragmentRE   = regexp.MustCompile(`'[^']*'|"[^"]*"|&&|[|;<>#]|[^\s'"|;<>#&]+|\s+|.`)
)

// documented returns the commands of all pages.
func documented(t *testing.T) (all []shown) {
	t.Helper()
	for page, text := range files(t, ".md") {
		for _, block := range fencedRE.FindAllStringSubmatch(text, -1) {
			for line := range strings.Lines(strings.ReplaceAll(block[2], "\\\n", " ")) {
				command, prompt := strings.CutPrefix(strings.TrimSpace(line), "$ ")
				if block[1] != "" && (block[1] != "console" || !prompt) || !programRE.MatchString(command+" ") {
					continue
				}
				for _, words := range splitLine(command) {
					all = append(all, shown{page, words, true})
				}
			}
		}
		for _, inline := range inlineRE.FindAllStringSubmatch(fencedRE.ReplaceAllString(text, ""), -1) {
			if programRE.MatchString(inline[1] + " ") {
				for _, words := range splitLine(inline[1]) {
					all = append(all, shown{page, words, false})
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b shown) int { return strings.Compare(a.page+a.String(), b.page+b.String()) })
	return all
}

// splitLine splits a line into its commands, without redirections, assignments and comments. `go run ./cmd/converge` is converge.
func splitLine(line string) (all [][]string) {
	var words []string
	word, redirected := "", false
	endWord := func() {
		if word != "" && !redirected && (len(words) > 0 || !assignmentRE.MatchString(word)) {
			words = append(words, word)
		}
		redirected = redirected && word == ""
		word = ""
	}
	end := func() {
		endWord()
		if len(words) > 3 && slices.Equal(words[:3], []string{"go", "run", "./cmd/converge"}) {
			words = slices.Insert(slices.Clone(words[3:]), 0, "converge")
		}
		if len(words) > 0 && words[0] != "export" && words[0] != "cd" {
			all = append(all, words)
		}
		words = nil
	}
	for _, part := range fragmentRE.FindAllString(line, -1) {
		switch {
		case part == "#" && word == "":
			end()
			return all
		case part == "|" && word == "", part == "&&", part == ";":
			end()
		case part == ">" && word == "", part == "<" && word == "":
			redirected = true
		case strings.TrimSpace(part) == "":
			endWord()
		case len(part) > 1 && strings.ContainsRune(`'"`, rune(part[0])):
			word += part[1 : len(part)-1]
		default:
			word += part
		}
	}
	end()
	return all
}

// parsed returns the verb of a command, and its flags that are set.
func parsed(t *testing.T, s shown) (verb *cobra.Command, flags []string) {
	t.Helper()
	verb, rest, err := newRoot(newConsole(t, nil).Factory).Find(s.words[1:])
	require.NoError(t, err, "%s: %s", s.page, s)
	group := verb.HasSubCommands() && verb.HasParent() && len(rest) == 0
	require.True(t, !verb.HasSubCommands() || !s.block && group, "%s: %s: no verb", s.page, s)
	if err := verb.ParseFlags(rest); s.block && err != nil {
		t.Errorf("%s: %s: %v", s.page, s, err)
	}
	if err := verb.ValidateArgs(verb.Flags().Args()); s.block && err != nil {
		t.Errorf("%s: %s: %v", s.page, s, err)
	}
	if verb.DisableFlagParsing {
		return verb, nil // another program parses them
	}
	for _, word := range rest {
		name, long := strings.CutPrefix(word, "--")
		name, _, _ = strings.Cut(name, "=")
		var flag *pflag.Flag
		switch {
		case long:
			flag = verb.Flag(name)
		case len(word) > 1 && word[0] == '-':
			flag = verb.Flags().ShorthandLookup(word[1:2])
		default:
			continue
		}
		if flag == nil {
			t.Errorf("%s: %s: unknown flag %s", s.page, s, word)
			continue
		}
		flags = append(flags, flag.Name)
	}
	return verb, flags
}

// pagesThatRun are the pages whose console blocks a test runs line by line, and compares with the output that they show.
var pagesThatRun = map[string]string{
	"docs/api.md":                   "TestAPIFromThePage",
	"docs/howto.md":                 "TestHowtoFromThePage",
	"docs/quickstart-kubernetes.md": "TestKubernetesPages",
	"docs/from-argocd-flux.md":      "TestKubernetesPages",
	"docs/trial.md":                 "TestKubernetesPages",
}

// elsewhere are the flags that a test passes in a line which does not name the verb.
var elsewhere = map[string]string{
	"admin acceptance ecs --public-ip": "TestAcceptanceOfECS_A11",
	"admin acceptance ecs --subnet":    "TestAcceptanceOfECS_A11",
	"admin codec-server --host":        "TestFlags",
	"admin codec-server --issuer":      "TestFlags",
	"admin codec-server --origin":      "TestFlags",
	"admin codec-server --to":          "TestFlags",
	"admin doctor --watch":             "TestFlags",
	"cancel --terminate":               "TestFlags",
	"config diff --exit-code":          "TestFlags",
	"config get assets --incarnation":  "TestAssetsAreReadByOthers_D1_D7",
	"config list --last":               "TestFlags",
	"config lock --runtime":            "TestCapabilitiesAreCapturedOnKubernetes_H6",
	"config pin --reason":              "TestFlags",
	"login --client-id":                "TestFlags",
	"promote --full":                   "TestRolloutsFromTheCommandLine_H3",
	"promote --reason":                 "TestRolloutsFromTheCommandLine_H3",
	"report timeline --last":           "TestGateFlags",
	"wait --timeout":                   "TestFlags",
	"config publish --dry-run":         "TestFlags",
	"config get assets --addon":        "TestAssetsAreReadByOthers_D1_D7",
	"login --device":                   "TestLoginWithoutRefreshToken",
	"admin store gc --dry-run":         "TestCollectedFromTheCommandLine_F11",
	"worker --build":                   "TestFlags",
	"worker --deployment":              "TestFlags",
	"worker --set-current":             "TestFlags",
	"worker --sops-age-key-file":       "TestEncryptedSecretIsAppliedDecrypted_G5",
}

// Every verb of converge that a page shows, with each of its flags, is run by a test.
func TestDocumentedCommandsAreRun(t *testing.T) {
	t.Parallel()
	all := documented(t)
	var tested []string
	for name, text := range files(t, "_test.go", ".txtar") {
		if name != "cmd/converge/docs_test.go" {
			tested = append(tested, strings.Split(text, "\n")...)
		}
	}
	for _, s := range all {
		if pagesThatRun[s.page] != "" && s.block {
			tested = append(tested, s.String())
		}
	}
	linesOf, tests, seen := map[string][]string{}, testNames(t), 0
	for _, s := range all {
		if s.words[0] != "converge" || len(s.words) == 1 || s.words[1][0] == '-' {
			continue
		}
		seen++
		verb, flags := parsed(t, s)
		_, path, _ := strings.Cut(verb.CommandPath(), " ")
		if _, known := linesOf[path]; !known {
			linesOf[path] = running(tested, path)
		}
		if len(linesOf[path]) == 0 {
			t.Errorf("%s: %s: no test runs %s", s.page, s, path)
		}
		for _, flag := range flags {
			if verb.InheritedFlags().Lookup(flag) != nil {
				continue // the connection and the output, which every verb has
			}
			if by := elsewhere[path+" --"+flag]; by != "" {
				require.True(t, tests[by], "%s: there is no %s", flag, by)
			} else if !passed(linesOf[path], verb.Flag(flag)) {
				t.Errorf("%s: %s: no test runs %s with --%s", s.page, s, path, flag)
			}
		}
	}
	require.Greater(t, seen, 200)
}

// running returns the lines that run a verb: in a script, of a test of the command line, or as the arguments of a process.
func running(lines []string, path string) (found []string) {
	words := strings.Fields(path)
	runs := regexp.MustCompile("(converge |[\"`])" + strings.Join(words, `( |", ")`) + "([ \"`]|$)")
	for _, line := range lines {
		if strings.Contains(line, words[0]) && runs.MatchString(line) {
			found = append(found, line)
		}
	}
	return found
}

// passed reports whether one of the lines has the flag.
func passed(lines []string, flag *pflag.Flag) bool {
	pattern := `--` + flag.Name + `\b`
	if flag.Shorthand != "" {
		pattern += `|[ "]-` + flag.Shorthand + `\b`
	}
	return slices.ContainsFunc(lines, regexp.MustCompile(pattern).MatchString)
}

// others are the commands of other programs, by how they begin: the test that runs what they do, or why none does.
var others = map[string]string{
	"argocd app delete": "needs Argo CD; TestKubernetesPages takes over from its field manager",
	"curl -H Host:":     "TestThirtyServicesFromNothing_E1_E2_E3_E4_E5_E7",
	"curl http://127.0.0.1:8234/api/v1/applications":                 "TestServeReadOnly",
	"curl http://127.0.0.1:9464/readyz":                              "TestReadiness_F10",
	"docker build -t converge-tools examples/compose":                "TestDockerComposeIsUp",
	"docker compose down":                                            "TestDockerComposeIsUp",
	"docker compose run":                                             "TestDockerComposeIsUp",
	"docker compose up":                                              "TestDockerComposeIsUp",
	"flux suspend kustomization":                                     "needs Flux",
	"helm install converge deploy/chart":                             "needs Helm, and nodes that run pods; TestChartIsAcceptedByTheServer",
	"helm uninstall converge":                                        "needs Helm",
	"kubectl --context production -n shop-production":                "TestKubernetesFromTheReadme_A11",
	"kubectl --context production get nodes":                         "needs make kube",
	"kubectl --context staging -n shop-orders patch database orders": "TestKubernetesFromTheReadme_A11",
	"kubectl -n converge rollout":                                    "needs nodes that run pods; TestChartIsAcceptedByTheServer",
	"kubectl annotate configmap":                                     "TestMovedInstallationIsNotAppliedOver",
	"kubectl apply -f deploy/kubernetes/cluster-wide.yaml":           "TestKubernetesPlainManifests",
	"kubectl auth can-i create namespaces":                           "TestKubernetesPages",
	"kubectl config view":                                            "asks no cluster",
	"kubectl get all":                                                "TestKubernetesPages",
	"sops --encrypt":                                                 "make sops-test compares with SOPS",
	"tcld namespace search-attributes add":                           "TestSearchAttributesAreFew",
	"temporal operator search-attribute create":                      "TestDoctorOfNamespaces_F10",
	"temporal worker deployment":                                     "needs a second build",
	"temporal workflow cancel --workflow-id":                         "TestStepsAroundAPlan_E15",
	"temporal workflow list":                                         "TestHelloFromTheReadme_C9_D7_F4",
	"temporal workflow query":                                        "TestHelloFromTheReadme_C9_D7_F4",
	"temporal workflow reset":                                        "TestResetServiceStaysWhereItWas_F1_F2",
	"temporal workflow show":                                         "TestPayloadsAreEncrypted_G5",
	"temporal workflow signal -w service/gates/shop":                 "TestGateVerbs",
	"temporal workflow signal -w service/hello/web":                  "TestHelloFromTheReadme_C9_D7_F4",
	"temporal workflow terminate":                                    "TestEndedServiceIsManagedAgain_F1",
	"temporal workflow update execute -w application/gates":          "TestJointReleaseIsOne_B8",
	"temporal workflow update execute -w service/gates/shop":         "TestGateVerbs",
	"temporal workflow update execute -w service/hello/web":          "TestHelloFromTheReadme_C9_D7_F4",
}

// A test runs the commands of other programs, too. Those of people who work on this repository name targets and packages that there are.
func TestDocumentedCommandsOfOthersAreRun(t *testing.T) {
	t.Parallel()
	used, tests := map[string]bool{}, testNames(t)
	makefile, err := os.ReadFile(filepath.Join("..", "..", "Makefile"))
	require.NoError(t, err)
	for _, s := range documented(t) {
		if s.words[0] == "converge" || pagesThatRun[s.page] != "" && s.block || !s.block && (len(s.words) < 4 || strings.Contains(s.String(), "…")) {
			continue
		}
		if s.words[0] == "make" || s.words[0] == "go" {
			for _, missing := range missingOfRepository(s.words, string(makefile)) {
				t.Errorf("%s: %s: there is no %s", s.page, s, missing)
			}
			continue
		}
		longest := ""
		for begin := range others {
			if strings.HasPrefix(s.String()+" ", begin+" ") && len(begin) > len(longest) {
				longest = begin
			}
		}
		if used[longest] = true; longest == "" {
			t.Errorf("%s: %s: no test runs it", s.page, s)
		}
	}
	for begin, by := range others {
		if !used[begin] {
			t.Errorf("no page shows %s", begin)
		}
		if strings.HasPrefix(by, "Test") && !tests[by] {
			t.Errorf("%s: there is no %s", begin, by)
		}
	}
}

// missingOfRepository returns the targets of make, or the packages of go, that a command names and that there are not.
func missingOfRepository(words []string, makefile string) (missing []string) {
	for _, word := range words[1:] {
		if words[0] == "make" && !strings.Contains(word, "=") && !strings.Contains(makefile, "\n"+word+": ") {
			missing = append(missing, word)
		}
		if dir, isPath := strings.CutPrefix(word, "./"); words[0] == "go" && isPath {
			if _, err := os.Stat(filepath.Join("..", "..", strings.TrimSuffix(dir, "..."))); err != nil {
				missing = append(missing, word)
			}
		}
	}
	return missing
}

// testNames are the tests of the repository.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	declared, all := regexp.MustCompile(`(?m)^func (Test\w+)\(`), map[string]bool{}
	for _, text := range files(t, "_test.go") {
		for _, found := range declared.FindAllStringSubmatch(text, -1) {
			all[found[1]] = true
		}
	}
	return all
}
