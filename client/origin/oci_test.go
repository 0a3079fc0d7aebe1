package origin

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	godigest "github.com/opencontainers/go-digest"
	specs "github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2/registry/remote"
)

// testRegistry is a repository in a registry that is served on loopback.
type testRegistry struct {
	*remote.Repository
	name        string // oci://HOST/acme/shop
	unavailable bool
	// user and password that it requires; empty: none.
	user, password string
}

func newTestRegistry(t *testing.T) *testRegistry {
	t.Helper()
	a := &testRegistry{}
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.unavailable {
			http.Error(w, "away", http.StatusServiceUnavailable)
			return
		}
		if user, password, _ := r.BasicAuth(); user != a.user || password != a.password {
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			http.Error(w, "who are you", http.StatusUnauthorized)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	where := strings.TrimPrefix(server.URL, "http://") + "/acme/shop"
	repository, err := remote.NewRepository(where)
	require.NoError(t, err)
	repository.PlainHTTP = true
	a.Repository, a.name = repository, "oci://"+where
	return a
}

// blob pushes content, and returns its descriptor.
func (a *testRegistry) blob(t *testing.T, media string, data []byte) ocispec.Descriptor {
	t.Helper()
	d := ocispec.Descriptor{MediaType: media, Digest: godigest.FromBytes(data), Size: int64(len(data))}
	require.NoError(t, a.Blobs().Push(t.Context(), d, bytes.NewReader(data)))
	return d
}

// push makes a tag refer to a new manifest with these layers.
func (a *testRegistry) push(t *testing.T, tag string, layers ...ocispec.Descriptor) godigest.Digest {
	t.Helper()
	config := a.blob(t, "application/vnd.oci.empty.v1+json", []byte("{}"))
	data, err := json.Marshal(ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, Config: config, Layers: layers,
		Annotations: map[string]string{ocispec.AnnotationRevision: "main@sha1:4be1a90c"},
	})
	require.NoError(t, err)
	d := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: godigest.FromBytes(data), Size: int64(len(data))}
	require.NoError(t, a.Manifests().PushReference(t.Context(), d, bytes.NewReader(data), tag))
	return d.Digest
}

const fluxMedia = "application/vnd.cncf.flux.content.v1.tar+gzip"

// archive returns a gzipped tar archive.
func archive(t *testing.T, entries ...tar.Header) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	w := tar.NewWriter(z)
	for _, e := range entries {
		content := e.PAXRecords["content"]
		e.PAXRecords, e.Size = nil, int64(len(content))
		if e.Mode == 0 {
			e.Mode = 0o644
		}
		require.NoError(t, w.WriteHeader(&e))
		_, err := io.WriteString(w, content)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	require.NoError(t, z.Close())
	return out.Bytes()
}

func tarFile(name, content string) tar.Header {
	return tar.Header{Typeflag: tar.TypeReg, Name: name, PAXRecords: map[string]string{"content": content}}
}

// pushConfiguration makes the tag v1 refer to a configuration.
func (a *testRegistry) pushConfiguration(t *testing.T, content string) godigest.Digest {
	t.Helper()
	return a.push(t, "v1", a.blob(t, fluxMedia, archive(t, tarFile("./deploy/converge.yaml", content))))
}

func artifactSource(t *testing.T) testSource {
	a := newTestRegistry(t)
	return testSource{
		name:   a.name + ":v1//deploy",
		write:  func(t *testing.T, content string) { a.pushConfiguration(t, content) },
		remove: func(*testing.T) { a.unavailable = true }, restore: func(*testing.T) { a.unavailable = false },
	}
}

// A source with a digest stays at that content, regardless of later changes of the tag.
func TestArtifactsByDigest_D8(t *testing.T) {
	useTempCache(t)
	a := newTestRegistry(t)
	first := a.pushConfiguration(t, "one")
	second := a.pushConfiguration(t, "two")
	for reference, want := range map[string]godigest.Digest{"@" + first.String(): first, ":v1": second} {
		s, err := Parse(a.name + reference + "//deploy")
		require.NoError(t, err)
		tree, err := s.Fetch(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, want.String(), tree.Origin.Commit)
		require.Equal(t, strings.TrimPrefix(a.name, "oci://")+"//deploy", tree.Origin.Path)
		require.Len(t, tree.Causes, 1)
		require.Contains(t, tree.Causes[0], want.Encoded()[:12])
		require.Contains(t, tree.Causes[0], "of main@sha1:4be1a90c")
		tree, err = s.Fetch(t.Context(), sinceCommit(want.String()))
		require.NoError(t, err)
		require.Empty(t, tree.Causes, "it was published already")
	}
}

func TestNamesOfArtifacts(t *testing.T) {
	useTempCache(t)
	for text, want := range map[string]string{
		"oci://ghcr.io/acme/shop":              "it has neither a tag nor a digest",
		"oci://u:s3cret@ghcr.io/acme/shop:v1":  "a password or token in it would be visible to others",
		"oci://ghcr.io/acme/shop:v1//../b":     "the path is invalid",
		"oci://ghcr.io/acme/shop:v1?ref=main":  "only the parameter key is allowed",
		"oci://ghcr.io:v1":                     "expected oci://HOST/REPOSITORY:TAG//PATH?key=FILE",
		"oci://ghcr.io/acme/shop@sha256:12345": "expected oci://HOST/REPOSITORY:TAG//PATH?key=FILE",
	} {
		_, err := Parse(text)
		require.ErrorContains(t, err, want, text)
		require.NotContains(t, err.Error(), "s3cret")
	}
	s, err := Parse("oci://ghcr.io/acme/shop:v1//deploy/eu?key=keys/cosign.pub")
	require.NoError(t, err)
	is := *s.(*artifact)
	is.name, is.cache = "", ""
	require.Equal(t, artifact{repository: "ghcr.io/acme/shop", reference: "v1", path: "deploy/eu", key: "keys/cosign.pub"}, is)
}

// Credentials are read from where docker login keeps them, and sent only to their registry.
func TestCredentialsOfARegistry(t *testing.T) {
	useTempCache(t)
	a := newTestRegistry(t)
	a.pushConfiguration(t, "one")
	a.user, a.password = "ada", "s3cret"
	s, err := Parse(a.name + ":v1//deploy")
	require.NoError(t, err)
	dir := t.TempDir()
	t.Setenv("DOCKER_CONFIG", dir)
	login := func(host, password string) string {
		return `{"auths":{"` + host + `":{"auth":"` + base64.StdEncoding.EncodeToString([]byte("ada:"+password)) + `"}}}`
	}
	host := a.Reference.Registry
	for _, config := range []string{"{}", login("elsewhere.dev", "s3cret"), login(host, "wrong")} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o600))
		_, err = s.Newest(t.Context())
		require.Error(t, err, config)
		require.NotContains(t, err.Error(), "wrong")
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(login(host, "s3cret")), 0o600))
	_, err = s.Fetch(t.Context(), nil)
	require.NoError(t, err)
}

// No archive can make the fetch write outside of its directory.
func TestHostileArchives_G4(t *testing.T) {
	useTempCache(t)
	a := newTestRegistry(t)
	good := tarFile("converge.yaml", "fine")
	link := func(name, target string) tar.Header {
		return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target}
	}
	for name, row := range map[string]struct {
		entries []tar.Header
		want    string // error; empty: it is accepted
	}{
		"inside":         {[]tar.Header{good, link("b", "./converge.yaml"), {Typeflag: tar.TypeDir, Name: "./", Mode: 0o755}}, ""},
		"absolute":       {[]tar.Header{good, tarFile("/etc/x", "")}, `invalid name "/etc/x"`},
		"up":             {[]tar.Header{good, tarFile("a/../../x", "")}, `invalid name "a/../../x"`},
		"link out":       {[]tar.Header{good, link("a", "../x")}, "a is a link to a target outside the repository"},
		"link to /":      {[]tar.Header{good, link("a", "/etc")}, "a is a link to a target outside the repository"},
		"through a link": {[]tar.Header{good, {Typeflag: tar.TypeDir, Name: "d", Mode: 0o755}, link("a", "d"), tarFile("a/x", "")}, "file exists"},
		"twice":          {[]tar.Header{good, tarFile("converge.yaml", "other")}, "file exists"},
		"hard link":      {[]tar.Header{good, {Typeflag: tar.TypeLink, Name: "a", Linkname: "/etc/passwd"}}, "a is neither a file, a directory nor a symbolic link"},
		"device":         {[]tar.Header{good, {Typeflag: tar.TypeChar, Name: "a"}}, "a is neither a file"},
		"git directory":  {[]tar.Header{good, tarFile(".git/config", "")}, "invalid name"},
		"large file":     {[]tar.Header{good, tarFile("a", largeFileMark+"v1")}, "is stored in Git LFS"},
	} {
		t.Run(name, func(t *testing.T) {
			a.push(t, "v1", a.blob(t, fluxMedia, archive(t, row.entries...)))
			s, err := Parse(a.name + ":v1")
			require.NoError(t, err)
			tree, err := s.Fetch(t.Context(), nil)
			if row.want == "" {
				require.NoError(t, err)
				require.Equal(t, "fine", contentOfTree(t, tree))
				return
			}
			require.ErrorContains(t, err, row.want)
			left, err := filepath.Glob(filepath.Join(string(s.(*artifact).cache), treePrefix+"*"))
			require.NoError(t, err)
			require.LessOrEqual(t, len(left), 1, "an incomplete fetch is not kept")
		})
	}
	layer := a.blob(t, fluxMedia, archive(t, good))
	for want, layers := range map[string][]ocispec.Descriptor{
		"it has 0 layers that are tar+gzip": {a.blob(t, "text/plain", []byte("x"))}, "it has 2 layers that are tar+gzip": {layer, layer},
		"gzip: invalid header": {a.blob(t, fluxMedia, []byte("no archive at all"))},
	} {
		a.push(t, "v1", layers...)
		s, err := Parse(a.name + ":v1")
		require.NoError(t, err)
		_, err = s.Fetch(t.Context(), nil)
		require.ErrorContains(t, err, want)
	}
}

// A small archive may have large content, which is limited.
func TestArchivesAreBounded_G6(t *testing.T) {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	w := tar.NewWriter(z)
	require.NoError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "a", Mode: 0o644, Size: maxBytes + 1}))
	require.NoError(t, z.Close())
	require.ErrorContains(t, unpack(t.Context(), &out, t.TempDir(), ""), "its files have more than 256 MiB")

	out.Reset()
	z = gzip.NewWriter(&out)
	w = tar.NewWriter(z)
	for range maxFiles + 1 {
		require.NoError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "x"}}))
	}
	require.NoError(t, w.Close())
	require.NoError(t, z.Close())
	require.ErrorIs(t, unpack(t.Context(), &out, t.TempDir(), ""), errTooMany)
}

// sign signs a digest with a key, and stores the signature for the artifact, as cosign does.
func (a *testRegistry) sign(t *testing.T, key *ecdsa.PrivateKey, of godigest.Digest, digest string) {
	t.Helper()
	text := []byte(`{"critical":{"identity":{"docker-reference":"shop"},"image":{"docker-manifest-digest":"` + digest + `"},"type":"cosign container image signature"},"optional":null}`)
	sum := sha256.Sum256(text)
	signature, err := ecdsa.SignASN1(rand.Reader, key, sum[:])
	require.NoError(t, err)
	layer := a.blob(t, signatureMedia, text)
	layer.Annotations = map[string]string{signatureAnnotation: base64.StdEncoding.EncodeToString(signature)}
	a.push(t, "sha256-"+of.Encoded()+".sig", layer)
}

// With a key, an artifact that it did not sign is refused.
func TestSignedArtifacts_D8(t *testing.T) {
	useTempCache(t)
	a := newTestRegistry(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "cosign.pub")
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), 0o600))

	is := a.pushConfiguration(t, "one")
	s, err := Parse(a.name + ":v1//deploy?key=" + file)
	require.NoError(t, err)
	fetch := func() error {
		_, err := s.Fetch(t.Context(), nil)
		return err
	}
	require.ErrorContains(t, fetch(), "is not signed")
	a.sign(t, other, is, is.String())
	require.ErrorIs(t, fetch(), errUnsigned, "by another key")
	a.sign(t, key, is, godigest.FromString("another").String())
	require.ErrorIs(t, fetch(), errUnsigned, "of another artifact")
	a.sign(t, key, is, is.String())
	require.NoError(t, fetch())
	a.pushConfiguration(t, "two")
	require.ErrorContains(t, fetch(), "is not signed", "the tag names other content")

	require.NoError(t, os.WriteFile(file, []byte("none"), 0o600))
	require.ErrorContains(t, fetch(), "it is not a PEM file")
}
