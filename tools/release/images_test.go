package main

import (
	"archive/tar"
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/stretchr/testify/require"
)

// releasedFor is a release of the small programs.
func releasedFor(t *testing.T, platforms ...platform) string {
	t.Helper()
	source, _ := checkout(t)
	dir := filepath.Join(t.TempDir(), "out")
	r := &release{source: source, dir: dir, out: io.Discard, platforms: platforms}
	require.NoError(t, r.build(t.Context()))
	return dir
}

// unpack extracts the files of an image, with their owners if the caller may.
func unpack(t *testing.T, image v1.Image) (root string) {
	t.Helper()
	root = t.TempDir()
	require.NoError(t, os.Chmod(root, 0o755))
	files := mutate.Extract(image)
	defer files.Close() // it was read to its end
	for archive := tar.NewReader(files); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return root
		}
		require.NoError(t, err)
		path := filepath.Join(root, header.Name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		if header.Typeflag == tar.TypeDir {
			require.NoError(t, os.MkdirAll(path, 0o700))
		} else {
			content, err := io.ReadAll(archive)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, content, 0o600))
		}
		require.NoError(t, os.Chmod(path, os.FileMode(header.Mode)&0o777)) //nolint:gosec // of a test
		if os.Getuid() == 0 {
			require.NoError(t, os.Chown(path, header.Uid, header.Gid))
		}
	}
}

// The images of a release are pushed to a registry by digest, the same again from the same artefacts, signed as cosign does. What they run,
// they run as a user without rights, who finds authorities and time zones.
func TestImages(t *testing.T) {
	dir := releasedFor(t, platform{"linux", "amd64"}, platform{"linux", "arm64"}, platform{"darwin", "arm64"})
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	prefix := strings.TrimPrefix(server.URL, "http://") + "/org"
	private, public := newKey(t)
	var said bytes.Buffer
	oci := filepath.Join(t.TempDir(), "layout")
	require.NoError(t, makeImages(t.Context(), []string{"-release", dir, "-layout", oci, "-push", prefix, "-key", private}, &said))
	lines := strings.Fields(said.String())
	require.Len(t, lines, 2)
	var again bytes.Buffer
	require.NoError(t, makeImages(t.Context(), []string{"-release", dir, "-push", prefix, "-key", private}, &again))
	require.Equal(t, said.String(), again.String())

	reference, err := name.ParseReference(lines[0])
	require.NoError(t, err)
	index, err := remote.Index(reference)
	require.NoError(t, err)
	require.NoError(t, validate.Index(index))
	manifest, err := index.IndexManifest()
	require.NoError(t, err)
	require.Len(t, manifest.Manifests, 2)
	require.Equal(t, "linux/arm64", manifest.Manifests[1].Platform.String())
	image, err := index.Image(manifest.Manifests[0].Digest)
	require.NoError(t, err)
	config, err := image.ConfigFile()
	require.NoError(t, err)
	require.Equal(t, "65532:65532", config.Config.User)
	require.Equal(t, []string{"/usr/bin/converge"}, config.Config.Entrypoint)
	require.Regexp(t, `^v0\.0\.0-\d{14}-[0-9a-f]{12}$`, config.Config.Labels["org.opencontainers.image.version"])
	require.Regexp(t, `^[0-9a-f]{40}$`, config.Config.Labels["org.opencontainers.image.revision"])

	root := unpack(t, image)
	roots, err := os.ReadFile(filepath.Join(root, "etc/ssl/certs/ca-certificates.crt"))
	require.NoError(t, err)
	require.Greater(t, bytes.Count(roots, []byte("BEGIN CERTIFICATE")), 100)
	require.FileExists(t, filepath.Join(root, "usr/share/zoneinfo.zip"))
	require.FileExists(t, filepath.Join(root, "usr/bin/converge-wrapper"))
	require.NoFileExists(t, filepath.Join(root, "usr/bin/converge-dev"))
	verifyImageSignature(t, reference, public)
	written, err := layout.ImageIndexFromPath(oci)
	require.NoError(t, err)
	require.NoError(t, validate.Index(written))

	if os.Getuid() != 0 {
		t.Skip("only root may run a program in another root directory")
	}
	cmd := exec.CommandContext(t.Context(), "/usr/bin/converge", "version")
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: imageUser, Gid: imageUser}}
	cmd.Env, cmd.Dir = config.Config.Env, config.Config.WorkingDir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Equal(t, "[version]\n", string(out))
}

func verifyImageSignature(t *testing.T, signed name.Reference, public string) {
	t.Helper()
	digest := strings.Replace(signed.Identifier(), ":", "-", 1)
	signature, err := remote.Image(signed.Context().Tag(digest + ".sig"))
	require.NoError(t, err)
	manifest, err := signature.Manifest()
	require.NoError(t, err)
	layers, err := signature.Layers()
	require.NoError(t, err)
	in, err := layers[0].Compressed()
	require.NoError(t, err)
	payload, err := io.ReadAll(in)
	require.NoError(t, err)
	require.Contains(t, string(payload), signed.Identifier())
	binary, err := base64.StdEncoding.DecodeString(manifest.Layers[0].Annotations["dev.cosignproject.cosign/signature"])
	require.NoError(t, err)
	files := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(files, "sig"), binary, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(files, "payload"), payload, 0o600))
	out, err := exec.CommandContext(t.Context(), "openssl", "dgst", "-sha256", "-verify", public, "-signature", filepath.Join(files, "sig"), filepath.Join(files, "payload")).CombinedOutput()
	require.NoError(t, err, string(out))
}

// A release for one platform has archives for docker load of that one.
func TestImageArchives(t *testing.T) {
	dir := releasedFor(t, platform{"linux", "amd64"})
	to := t.TempDir()
	require.NoError(t, makeImages(t.Context(), []string{"-release", dir, "-archives", to}, io.Discard))
	archives, err := filepath.Glob(filepath.Join(to, "*"))
	require.NoError(t, err)
	require.Len(t, archives, 2)
	image, err := tarball.ImageFromPath(archives[0], nil)
	require.NoError(t, err)
	require.NoError(t, validate.Image(image))
	require.FileExists(t, filepath.Join(unpack(t, image), "usr/bin/converge-dev"))
}

// What no image can be made of is named.
func TestImagesOfOtherDirectories(t *testing.T) {
	dir := releasedFor(t, platform{"linux", "amd64"})
	to := filepath.Join(t.TempDir(), "new")
	archives, err := filepath.Glob(filepath.Join(dir, "converge-dev_*.tar.gz"))
	require.NoError(t, err)
	require.Len(t, archives, 1)
	require.NoError(t, os.WriteFile(archives[0], []byte("changed"), 0o600))
	require.ErrorContains(t, makeImages(t.Context(), []string{"-release", dir, "-layout", to}, io.Discard), "its SHA-256 is")
	require.ErrorContains(t, makeImages(t.Context(), []string{"-release", t.TempDir(), "-layout", to}, io.Discard), "expected the directory of a release")
	darwin := releasedFor(t, platform{"darwin", "arm64"})
	require.ErrorContains(t, makeImages(t.Context(), []string{"-release", darwin, "-layout", to}, io.Discard), "it has no archive for linux")
	require.NoDirExists(t, to)
	require.EqualError(t, makeImages(t.Context(), nil, io.Discard), "images: expected -layout, -archives or -push")
	require.EqualError(t, makeImages(t.Context(), []string{"-layout", to, "more"}, io.Discard), `"more" is not expected`)
}
