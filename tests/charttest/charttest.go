// Package charttest serves charts on loopback for tests: a repository with an index.yaml, as web servers have them, and a real
// OCI registry.
package charttest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/google/go-containerregistry/pkg/registry"
	godigest "github.com/opencontainers/go-digest"
	specs "github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2/registry/remote"
)

// Pack makes a chart's archive of name, content pairs, without the name of the chart before them.
func Pack(t testing.TB, name, version string, files ...string) []byte {
	t.Helper()
	all := append([]string{"Chart.yaml", fmt.Sprintf("{apiVersion: v2, name: %s, version: %s}", name, version)}, files...)
	return Archive(t, name, all...)
}

// PackDir makes the archive of a chart in a directory, in the version that is given.
func PackDir(t testing.TB, name, version string, from fs.FS) []byte {
	t.Helper()
	var files []string
	require.NoError(t, fs.WalkDir(from, ".", func(at string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(from, at)
		text := string(data)
		if at == "Chart.yaml" {
			lines := strings.Split(text, "\n")
			for i, line := range lines {
				if strings.HasPrefix(line, "version:") {
					lines[i] = "version: " + version
				}
			}
			text = strings.Join(lines, "\n")
		}
		files = append(files, at, text)
		return err
	}))
	return Archive(t, name, files...)
}

// Released is a chart as its makers release it, from the folder that they make it of, which has a template of Chart.yaml with v0.0.0 for
// its version.
func Released(t testing.TB, name, version string, from fs.FS) []byte {
	t.Helper()
	files := fstest.MapFS{}
	require.NoError(t, fs.WalkDir(from, ".", func(at string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(from, at)
		text := strings.NewReplacer("v0.0.0", version, "{{IS_PRERELEASE}}", "false").Replace(string(data))
		files[strings.Replace(at, "Chart.template.yaml", "Chart.yaml", 1)] = &fstest.MapFile{Data: []byte(text)}
		return err
	}))
	return PackDir(t, name, version, files)
}

// Archive makes an archive of files in a directory; their names may be anything.
func Archive(t testing.TB, under string, files ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	zipped := gzip.NewWriter(&b)
	archive := tar.NewWriter(zipped)
	for i := 0; i+1 < len(files); i += 2 {
		name := files[i]
		if under != "" {
			name = under + "/" + name
		}
		require.NoError(t, archive.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(files[i+1]))}))
		_, err := archive.Write([]byte(files[i+1]))
		require.NoError(t, err)
	}
	require.NoError(t, archive.Close())
	require.NoError(t, zipped.Close())
	return b.Bytes()
}

// Repository is a chart repository on loopback. What it serves may be changed at any time.
type Repository struct {
	URL string // http://127.0.0.1:PORT
	*httptest.Server

	mu sync.Mutex
	// served is by path; asked are the paths that somebody got, in their order.
	served map[string][]byte
	moved  map[string]string
	index  map[string][]map[string]any
	asked  []string
	// User and password that it asks for; empty: nobody is asked.
	User, Password string
	// Seen are the Authorization headers that came.
	Seen []string
}

// NewRepository serves an empty repository until the test ends.
func NewRepository(t testing.TB) *Repository {
	t.Helper()
	r := &Repository{served: map[string][]byte{}, moved: map[string]string{}, index: map[string][]map[string]any{}}
	r.Server = httptest.NewServer(http.HandlerFunc(r.serve))
	r.URL = r.Server.URL
	t.Cleanup(r.Close)
	return r
}

func (r *Repository) serve(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, q.URL.Path)
	if got := q.Header.Get("Authorization"); got != "" {
		r.Seen = append(r.Seen, got)
	}
	if user, password, _ := q.BasicAuth(); user != r.User || password != r.Password {
		http.Error(w, "who are you", http.StatusUnauthorized)
		return
	}
	if to, ok := r.moved[q.URL.Path]; ok {
		http.Redirect(w, q, to, http.StatusFound)
		return
	}
	data, ok := r.served[q.URL.Path]
	if q.URL.Path == "/index.yaml" && !ok {
		data, _ = json.Marshal(map[string]any{"apiVersion": "v1", "entries": r.index})
		ok = true
	}
	if !ok {
		http.NotFound(w, q)
		return
	}
	_, _ = w.Write(data)
}

// Add lists a version of a chart and serves it.
func (r *Repository) Add(name, version string, data []byte) {
	file := name + "-" + version + ".tgz"
	r.Serve("/"+file, data)
	r.List(name, version, file, strings.TrimPrefix(godigest.FromBytes(data).String(), "sha256:"))
}

// List lists a version of a chart, wherever and whatever it is. One that is listed goes.
func (r *Repository) List(name, version, address, digest string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	entry := map[string]any{"name": name, "version": version, "urls": []string{address}}
	if digest != "" {
		entry["digest"] = digest
	}
	others := slices.DeleteFunc(r.index[name], func(e map[string]any) bool { return e["version"] == version })
	r.index[name] = append(others, entry)
}

// Serve serves bytes under a path.
func (r *Repository) Serve(at string, data []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.served[at] = data
}

// Move redirects a path.
func (r *Repository) Move(at, to string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.moved[at] = to
}

// Asked are the paths that were asked for since the last call.
func (r *Repository) Asked() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	asked := r.asked
	r.asked = nil
	return asked
}

// Registry is an OCI registry on loopback.
type Registry struct {
	Host string // 127.0.0.1:PORT
	*httptest.Server

	mu sync.Mutex
	// User and password that it asks for; empty: nobody is asked.
	User, Password string
	swapped        map[string][]byte // what is served in the place of a blob, by its digest
	asked          int
}

// NewRegistry serves an empty registry until the test ends.
func NewRegistry(t testing.TB) *Registry {
	t.Helper()
	r := &Registry{swapped: map[string][]byte{}}
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		r.mu.Lock()
		r.asked++
		user, password, swapped := r.User, r.Password, r.swapped[path.Base(q.URL.Path)]
		r.mu.Unlock()
		if u, p, _ := q.BasicAuth(); u != user || p != password {
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			http.Error(w, "who are you", http.StatusUnauthorized)
			return
		}
		if swapped != nil && q.Method != http.MethodPut {
			w.Header().Set("Content-Type", "application/octet-stream")
			w.Header().Set("Content-Length", fmt.Sprint(len(swapped)))
			if q.Method == http.MethodGet {
				_, _ = w.Write(swapped)
			}
			return
		}
		handler.ServeHTTP(w, q)
	}))
	r.Host = strings.TrimPrefix(r.URL, "http://")
	t.Cleanup(r.Close)
	return r
}

// Push pushes a chart as Helm does, under the tag of its version, and returns its digest.
func (r *Registry) Push(t testing.TB, at, version string, data []byte) string {
	t.Helper()
	repository, err := remote.NewRepository(r.Host + "/" + at)
	require.NoError(t, err)
	repository.PlainHTTP = true
	blob := func(media string, data []byte) ocispec.Descriptor {
		d := ocispec.Descriptor{MediaType: media, Digest: godigest.FromBytes(data), Size: int64(len(data))}
		require.NoError(t, repository.Blobs().Push(t.Context(), d, bytes.NewReader(data)))
		return d
	}
	config := blob("application/vnd.cncf.helm.config.v1+json", []byte(fmt.Sprintf(`{"name": %q, "version": %q}`, path.Base(at), version)))
	layer := blob("application/vnd.cncf.helm.chart.content.v1.tar+gzip", data)
	manifest, err := json.Marshal(ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, Config: config, Layers: []ocispec.Descriptor{layer},
	})
	require.NoError(t, err)
	d := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: godigest.FromBytes(manifest), Size: int64(len(manifest))}
	require.NoError(t, repository.PushReference(t.Context(), d, bytes.NewReader(manifest), strings.ReplaceAll(version, "+", "_")))
	return layer.Digest.String()
}

// Swap serves other bytes in the place of what a digest names.
func (r *Registry) Swap(digest string, data []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.swapped[digest] = data
}

// Asked counts the requests so far.
func (r *Registry) Asked() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked
}
