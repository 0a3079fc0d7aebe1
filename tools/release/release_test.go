package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"github.com/secure-systems-lab/go-securesystemslib/signerverifier"
	"github.com/stretchr/testify/require"
)

// printer is a program that is small and has completions, in place of those of the product, which take minutes.
const printer = `package main

import (
	"fmt"
	"os"
)

func main() { fmt.Println(os.Args[1:]) }
`

// checkout is one with the programs of the product, each of them small.
func checkout(t *testing.T) (dir string, git func(args ...string)) {
	t.Helper()
	dir = t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	write("go.mod", "module example.org/small\n\ngo 1.26\n")
	write("LICENSE", "a license\n")
	write("CHANGELOG.md", "# Changelog\n")
	write("docs/cli/README.md", "<!-- generated -->\n\n# Commands\n\nSee [admin](admin.md).\n")
	write("docs/cli/admin.md", "# converge admin\n\nDiagnose it.\n\n```text\nconverge admin [flags]\n```\n")
	for _, b := range bundles {
		for _, p := range b.programs {
			write("cmd/"+p.name+"/main.go", printer)
		}
	}
	git = func(args ...string) {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), "git", append([]string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"}, args...)...).CombinedOutput()
		require.NoError(t, err, string(out))
	}
	git("init", "-q")
	git("add", ".")
	git("commit", "-q", "-m", "small")
	return dir, git
}

// documented runs, in a directory, the lines of docs/artefacts.md that begin with one of these commands, and returns what they print.
func documented(t *testing.T, dir string, commands ...string) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "artefacts.md"))
	require.NoError(t, err)
	var lines []string
	for line := range strings.Lines(string(page)) {
		if slices.ContainsFunc(commands, func(c string) bool { return strings.HasPrefix(line, c+" ") }) {
			lines = append(lines, line)
		}
	}
	require.Len(t, lines, len(commands))
	cmd := exec.CommandContext(t.Context(), "sh", "-e")
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(strings.Join(lines, ""))
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	return string(out)
}

// newKey writes a private key and its public one, as the documentation says.
func newKey(t *testing.T) (private, public string) {
	t.Helper()
	dir := t.TempDir()
	documented(t, dir, "openssl genpkey", "openssl pkey")
	return filepath.Join(dir, "key.pem"), filepath.Join(dir, "key.pub")
}

func built(t *testing.T, source, key string) (dir string, r *release) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "out")
	r = &release{source: source, dir: dir, out: io.Discard}
	var err error
	r.signer, err = readSigner(key)
	require.NoError(t, err)
	require.NoError(t, r.parse("linux/amd64,darwin/arm64"))
	require.NoError(t, r.build(t.Context()))
	return dir, r
}

// unpacked are the files of an archive, by name.
func unpacked(t *testing.T, path string) map[string]file {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	zipped, err := gzip.NewReader(bytes.NewReader(data))
	require.NoError(t, err)
	files := map[string]file{}
	for archive := tar.NewReader(zipped); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		require.NoError(t, err)
		content, err := io.ReadAll(archive)
		require.NoError(t, err)
		files[header.Name] = file{header.Name, fs.FileMode(header.Mode), content} //nolint:gosec // of a test
	}
}

// A release has the programs of each platform, with the version that Go gives the commit, and everything is dated with the commit.
func TestReleaseHasProgramsOfEachPlatform(t *testing.T) {
	source, _ := checkout(t)
	private, public := newKey(t)
	dir, r := built(t, source, private)
	require.Regexp(t, `^v0\.0\.0-\d{14}-[0-9a-f]{12}$`, r.version)
	version := r.version[1:]
	folder := "converge_" + version + "_linux_amd64"
	files := unpacked(t, filepath.Join(dir, folder+".tar.gz"))
	modes := map[string]fs.FileMode{}
	for name, f := range files {
		modes[name[len(folder)+1:]] = f.mode
	}
	require.Equal(t, map[string]fs.FileMode{
		"converge": 0o755, "converge-render": 0o755, "converge-wrapper": 0o755, "LICENSE": 0o644, "CHANGELOG.md": 0o644,
		"completions/converge.bash": 0o644, "completions/_converge": 0o644, "completions/converge.fish": 0o644,
		"man/man1/converge.1": 0o644, "man/man1/converge-admin.1": 0o644,
		"sbom/converge.cdx.json": 0o644, "sbom/converge-render.cdx.json": 0o644, "sbom/converge-wrapper.cdx.json": 0o644,
		"system/converge-worker.service": 0o644, "system/converge-serve.service": 0o644, "system/converge.env": 0o644,
		"system/sysusers.conf": 0o644, "system/installed.sh": 0o644, "system/removed.sh": 0o644,
	}, modes)
	var parts struct {
		Format   string `json:"bomFormat"`
		Metadata struct {
			Component struct{ Name, Version string }
		}
		Components []struct{ Name, Version string }
	}
	require.NoError(t, json.Unmarshal(files[folder+"/sbom/converge.cdx.json"].content, &parts))
	require.Equal(t, "CycloneDX", parts.Format)
	require.Equal(t, struct{ Name, Version string }{"example.org/small", r.version}, parts.Metadata.Component)
	require.Equal(t, []struct{ Name, Version string }{{"std", runtime.Version()}}, parts.Components)
	require.Equal(t, "[completion zsh]\n", string(files[folder+"/completions/_converge"].content))
	page := string(files[folder+"/man/man1/converge-admin.1"].content)
	require.Regexp(t, `(?m)^\.TH CONVERGE-ADMIN 1 `, page)
	require.Contains(t, page, "Diagnose it.")
	require.NotContains(t, string(files[folder+"/man/man1/converge.1"].content), "admin.md")

	info, err := buildinfo.Read(bytes.NewReader(files[folder+"/converge"].content))
	require.NoError(t, err)
	require.Equal(t, r.version, info.Main.Version)
	names := func(path string) (all []string) {
		for name := range unpacked(t, filepath.Join(dir, path+".tar.gz")) {
			all = append(all, filepath.Base(name))
		}
		return all
	}
	require.NotContains(t, names("converge_"+version+"_darwin_arm64"), "converge-wrapper", "it runs in containers")
	require.ElementsMatch(t, []string{"converge-dev", "converge-dev.cdx.json"}, names("converge-dev_"+version+"_darwin_arm64"))

	key, err := os.ReadFile(public)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "key.pub"), key, 0o600))
	out := documented(t, dir, "sha256sum", "base64", "openssl dgst")
	require.Len(t, regexp.MustCompile(`: OK`).FindAllString(out, -1), 6)
	require.Contains(t, out, "Verified OK\n")
	verifySignatures(t, dir, public, r)
}

// verifySignatures verifies, with a program and a library that have no part in making them, that the signature is of nothing else, and the
// provenance.
func verifySignatures(t *testing.T, dir, public string, r *release) {
	t.Helper()
	other := exec.CommandContext(t.Context(), "openssl", "dgst", "-sha256", "-verify", public, "-signature", filepath.Join(dir, "sums.sig"), filepath.Join(dir, provenanceName))
	out, err := other.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "Verification failure")

	pem, err := os.ReadFile(public)
	require.NoError(t, err)
	key, err := signerverifier.LoadKey(pem)
	require.NoError(t, err)
	verifier, err := signerverifier.NewECDSASignerVerifierFromSSLibKey(key)
	require.NoError(t, err)
	envelopes, err := dsse.NewEnvelopeVerifier(verifier)
	require.NoError(t, err)
	line, err := os.ReadFile(filepath.Join(dir, "provenance.intoto.jsonl"))
	require.NoError(t, err)
	var envelope dsse.Envelope
	require.NoError(t, json.Unmarshal(line, &envelope))
	envelope.Signatures[0].KeyID = "" // that library has ids of its own
	_, err = envelopes.Verify(t.Context(), &envelope)
	require.NoError(t, err)
	body, err := envelope.DecodeB64Payload()
	require.NoError(t, err)
	var said statement
	require.NoError(t, json.Unmarshal(body, &said))
	require.Equal(t, "https://slsa.dev/provenance/v1", said.PredicateType)
	require.Len(t, said.Subject, 6)
	content, err := os.ReadFile(filepath.Join(dir, said.Subject[0].Name))
	require.NoError(t, err)
	require.Equal(t, fmt.Sprintf("%x", sha256.Sum256(content)), said.Subject[0].Digest["sha256"])
	require.Equal(t, map[string]string{"gitCommit": r.commit}, said.Predicate.BuildDefinition.ResolvedDependencies[0].Digest)
	require.Len(t, r.commit, 40)
	envelope.Payload = base64.StdEncoding.EncodeToString(append(body, ' '))
	_, err = envelopes.Verify(t.Context(), &envelope)
	require.Error(t, err)
}

// A key that cannot sign is refused before anything is built, by what it is.
func TestReleaseRefusesOtherKeys(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct{ content, want string }{
		"nothing": {"", "expected a private key in PEM (PKCS #8, without a password)"},
		"locked":  {"-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n", "expected a private key in PEM (PKCS #8, without a password)"},
		"broken":  {"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "asn1"},
	} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(c.content), 0o600))
		_, err := readSigner(path)
		require.ErrorContains(t, err, c.want)
		require.ErrorContains(t, err, "-key "+path)
	}
	path := filepath.Join(dir, "ed25519")
	out, err := exec.CommandContext(t.Context(), "openssl", "genpkey", "-algorithm", "ed25519", "-out", path).CombinedOutput()
	require.NoError(t, err, string(out))
	_, err = readSigner(path)
	require.ErrorContains(t, err, "it is a ed25519.PrivateKey; expected an ECDSA key on P-256")
	_, err = readSigner(filepath.Join(dir, "missing"))
	require.ErrorContains(t, err, "no such file")
}

// The same commit gives the same bytes, in another directory too.
func TestReleaseIsReproducible(t *testing.T) {
	source, _ := checkout(t)
	key, _ := newKey(t)
	first, _ := built(t, source, key)
	clone := filepath.Join(t.TempDir(), "elsewhere")
	out, err := exec.CommandContext(t.Context(), "git", "clone", "-q", source, clone).CombinedOutput()
	require.NoError(t, err, string(out))
	second, _ := built(t, clone, key)
	for _, name := range []string{"SHA256SUMS", "SHA256SUMS.sig", "provenance.intoto.jsonl"} {
		before, err := os.ReadFile(filepath.Join(first, name))
		require.NoError(t, err)
		after, err := os.ReadFile(filepath.Join(second, name))
		require.NoError(t, err)
		require.Equal(t, string(before), string(after))
	}
}

// What no version describes is refused, and artefacts of before stay.
func TestReleaseRefusesAChangedCheckout(t *testing.T) {
	source, git := checkout(t)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "old"), nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, sumsName), nil, 0o600))
	r := &release{source: source, dir: dir, out: io.Discard, platforms: []platform{{"linux", "amd64"}}}
	require.NoError(t, os.WriteFile(filepath.Join(source, "LICENSE"), []byte("changed"), 0o600))
	require.ErrorContains(t, r.build(t.Context()), `the checkout has changes, such as "M LICENSE"; commit or remove them`)
	git("commit", "-q", "-a", "-m", "broken")
	require.NoError(t, os.WriteFile(filepath.Join(source, "cmd/converge/main.go"), []byte("package main\n"), 0o600))
	git("commit", "-q", "-a", "-m", "broken")
	require.ErrorContains(t, r.build(t.Context()), "function main is undeclared")
	require.FileExists(t, filepath.Join(dir, "old"))
	require.NoError(t, os.Remove(filepath.Join(dir, sumsName)))
	require.ErrorContains(t, r.build(t.Context()), "it has files that are not of a release, such as old; expected a new directory")
	require.FileExists(t, filepath.Join(dir, "old"))
	require.EqualError(t, r.parse("linux"), `-platforms "linux": expected GOOS/GOARCH, such as linux/amd64`)
}

// The packages have the programs, what shells and man read, and units of systemd that it accepts. They start nothing.
func TestPackages(t *testing.T) {
	source, _ := checkout(t)
	dir := filepath.Join(t.TempDir(), "out")
	r := &release{source: source, dir: dir, out: io.Discard, platforms: []platform{{"linux", "amd64"}}}
	require.NoError(t, r.build(t.Context()))
	packages, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	require.NoError(t, err)
	require.Len(t, packages, 1)
	rpms, err := filepath.Glob(filepath.Join(dir, "*.rpm"))
	require.NoError(t, err)
	require.Len(t, rpms, 1)
	run := func(name string, args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
		require.NoError(t, err, "%s %v: %s", name, args, out)
		return string(out)
	}
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("no dpkg-deb: the content of the package is not checked")
	}
	require.Contains(t, run("dpkg-deb", "--field", packages[0], "Version"), "0.0.0~", "older than the first version")
	listed := run("dpkg-deb", "--contents", packages[0])
	for _, line := range []string{
		`-rwxr-xr-x root/root .* \./usr/bin/converge\n`, `-rwxr-xr-x root/root .* \./usr/bin/converge-render\n`,
		`-rw-r--r-- root/root .* \./usr/share/man/man1/converge-admin\.1\n`, `\./usr/share/bash-completion/completions/converge\n`,
		`\./usr/share/zsh/vendor-completions/_converge\n`, `\./usr/share/doc/converge/copyright\n`, `\./usr/lib/sysusers.d/converge.conf\n`,
		`\./usr/share/doc/converge/sbom/converge\.cdx\.json\n`,
		`-rw------- root/root .* \./etc/converge/converge\.env\n`,
	} {
		require.Regexp(t, line, listed)
	}
	require.NotContains(t, listed, "site-functions")
	root := t.TempDir()
	run("dpkg-deb", "--raw-extract", packages[0], root)
	conffiles, err := os.ReadFile(filepath.Join(root, "DEBIAN", "conffiles"))
	require.NoError(t, err)
	require.Equal(t, "/etc/converge/converge.env\n", string(conffiles))
	for _, script := range []string{"postinst", "prerm"} {
		run("sh", "-n", filepath.Join(root, "DEBIAN", script))
	}
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("no systemd-analyze: the units are not checked")
	}
	for _, unit := range []string{"converge-worker", "converge-serve"} {
		text, err := os.ReadFile(filepath.Join(root, "usr/lib/systemd/system", unit+".service"))
		require.NoError(t, err)
		here := filepath.Join(t.TempDir(), unit+".service") // whose program is where it was extracted
		require.NoError(t, os.WriteFile(here, []byte(strings.ReplaceAll(string(text), "=/usr/bin/", "="+root+"/usr/bin/")), 0o600))
		require.Empty(t, run("systemd-analyze", "verify", "--man=no", here))
	}
}
