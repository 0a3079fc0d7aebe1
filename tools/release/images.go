package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	mozilla "golang.org/x/crypto/x509roots/fallback/bundle"
)

// imageUser owns what the programs of an image write, and runs them.
const imageUser = 65532

// images are those of a release, by name, and the bundles whose programs each has.
var images = map[string][]string{"converge": {"converge"}, "converge-dev": {"converge", "converge-dev"}}

// imageSet is the images of a release: for each name an index of the image of each platform.
type imageSet struct {
	version string
	indexes map[string]v1.ImageIndex
}

// readImages makes the images of a release from the archives in its directory, whose digests are checked. The same archives, and the same Go
// and modules of this program, give the same digests.
func readImages(dir string) (*imageSet, error) {
	programs, err := programsOf(dir)
	if err != nil {
		return nil, err
	}
	base, err := baseLayer()
	if err != nil {
		return nil, err
	}
	set := &imageSet{indexes: map[string]v1.ImageIndex{}}
	for name := range images {
		index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
		for _, arch := range []string{"amd64", "arm64"} {
			built, info, err := imageFor(name, arch, base, programs)
			if err != nil {
				return nil, err
			}
			if built == nil {
				continue // the release is not for that platform
			}
			set.version = info.Main.Version
			index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: built, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
		}
		set.indexes[name] = index
	}
	if set.version == "" {
		return nil, fmt.Errorf("-release %s: it has no archive for linux", dir)
	}
	return set, nil
}

// programsOf returns the programs for Linux in the archives of a release, by bundle and architecture: "converge/amd64".
func programsOf(dir string) (map[string][]file, error) {
	sums, err := os.ReadFile(filepath.Join(dir, sumsName))
	if err != nil {
		return nil, fmt.Errorf("-release %s: expected the directory of a release: %w", dir, err)
	}
	programs := map[string][]file{}
	for line := range strings.Lines(string(sums)) {
		digest, archive, _ := strings.Cut(strings.TrimSpace(line), "  ")
		parts := strings.Split(strings.TrimSuffix(archive, ".tar.gz"), "_")
		if !strings.HasSuffix(archive, ".tar.gz") || len(parts) != 4 || parts[2] != "linux" {
			continue
		}
		if programs[parts[0]+"/"+parts[3]], err = readPrograms(filepath.Join(dir, archive), digest); err != nil {
			return nil, fmt.Errorf("%s: %w", archive, err)
		}
	}
	return programs, nil
}

// imageFor makes an image for an architecture, and returns what its programs say of their build; nil if a program is missing.
func imageFor(name, arch string, base v1.Layer, programs map[string][]file) (image v1.Image, info *buildinfo.BuildInfo, err error) {
	layers := []v1.Layer{base}
	for _, b := range images[name] {
		files := programs[b+"/"+arch]
		if len(files) == 0 {
			return nil, nil, nil
		}
		if info, err = buildinfo.Read(bytes.NewReader(files[0].content)); err != nil {
			return nil, nil, err
		}
		layer, err := layerOf(files, timeOf(info))
		if err != nil {
			return nil, nil, err
		}
		layers = append(layers, layer)
	}
	image, err = imageOf(name, arch, info, layers)
	return image, info, err
}

// readPrograms returns the programs of an archive, as they are in an image.
func readPrograms(archive, digest string) (programs []file, err error) {
	data, err := os.ReadFile(archive)
	if err != nil {
		return nil, err
	}
	if is := fmt.Sprintf("%x", sha256.Sum256(data)); is != digest {
		return nil, fmt.Errorf("its SHA-256 is %s; %s says %s", is, sumsName, digest)
	}
	zipped, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	for in := tar.NewReader(zipped); ; {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return programs, nil
		}
		if err != nil {
			return nil, err
		}
		if header.Mode&0o111 == 0 {
			continue
		}
		content, err := io.ReadAll(in)
		if err != nil {
			return nil, err
		}
		programs = append(programs, file{"usr/bin/" + path.Base(header.Name), 0o755, content})
	}
}

// baseLayer has what programs expect of a system: users, folders that the image's user may write, certificates of authorities, time zones.
func baseLayer() (v1.Layer, error) {
	zones, err := os.ReadFile(filepath.Join(runtime.GOROOT(), "lib", "time", "zoneinfo.zip")) //nolint:staticcheck // of the Go that runs this
	if err != nil {
		return nil, err
	}
	var roots bytes.Buffer
	for root := range mozilla.Roots() {
		if root.Constraint == nil { // a file of certificates has no place for one
			_ = pem.Encode(&roots, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // to memory
		}
	}
	return layerOf([]file{
		{"etc/passwd", 0o644, fmt.Appendf(nil, "root:x:0:0:root:/:/sbin/nologin\nconverge:x:%[1]d:%[1]d:Converge:/home/converge:/sbin/nologin\n", imageUser)},
		{"etc/group", 0o644, fmt.Appendf(nil, "root:x:0:\nconverge:x:%d:\n", imageUser)},
		{"etc/ssl/certs/ca-certificates.crt", 0o644, roots.Bytes()},
		{"usr/share/zoneinfo.zip", 0o644, zones},
		{"home/converge/", 0o755, nil},
		{"var/lib/converge/", 0o700, nil},
		{"tmp/", 0o1777, nil},
	}, time.Unix(0, 0).UTC())
}

// layerOf makes a layer. A path that ends with a slash is a folder of the image's user; everything else belongs to root.
func layerOf(files []file, at time.Time) (v1.Layer, error) {
	var out bytes.Buffer
	archive := tar.NewWriter(&out)
	for _, f := range files {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: f.path, Mode: int64(f.mode), Size: int64(len(f.content)), ModTime: at, Format: tar.FormatPAX}
		if strings.HasSuffix(f.path, "/") {
			header.Typeflag, header.Uid, header.Gid = tar.TypeDir, imageUser, imageUser
		}
		if err := archive.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := archive.Write(f.content); err != nil {
			return nil, err
		}
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	opener := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(out.Bytes())), nil }
	return tarball.LayerFromOpener(opener, tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.BestCompression), tarball.WithCompressedCaching)
}

func imageOf(name, arch string, info *buildinfo.BuildInfo, layers []v1.Layer) (v1.Image, error) {
	image, err := mutate.AppendLayers(mutate.MediaType(mutate.ConfigMediaType(empty.Image, types.OCIConfigJSON), types.OCIManifestSchema1), layers...)
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", arch, v1.Time{Time: timeOf(info)}
	config.History = nil
	config.Config = v1.Config{
		User: fmt.Sprintf("%[1]d:%[1]d", imageUser), WorkingDir: "/home/converge", Entrypoint: []string{"/usr/bin/converge"},
		Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/home/converge", "ZONEINFO=/usr/share/zoneinfo.zip"},
		Labels: map[string]string{
			"org.opencontainers.image.title":    name,
			"org.opencontainers.image.version":  info.Main.Version,
			"org.opencontainers.image.revision": setting(info, "vcs.revision"),
			"org.opencontainers.image.created":  timeOf(info).Format(time.RFC3339),
			"org.opencontainers.image.source":   repository,
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	return mutate.ConfigFile(image, config)
}

// timeOf is the time of the commit that a program was built from; zero if it does not say.
func timeOf(info *buildinfo.BuildInfo) time.Time {
	at, _ := time.Parse(time.RFC3339, setting(info, "vcs.time"))
	return at.UTC()
}

func setting(info *buildinfo.BuildInfo, key string) string {
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}

// tag is the version as a tag of a registry, which has no "+".
func (s *imageSet) tag() string {
	return strings.ReplaceAll(strings.TrimPrefix(s.version, "v"), "+", "-")
}

// writeLayout writes all images into a new folder, an OCI layout.
func (s *imageSet) writeLayout(dir string) error {
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return fmt.Errorf("-layout %s: it has files, such as %s; expected a new directory", dir, entries[0].Name())
	}
	to, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	for _, image := range slices.Sorted(maps.Keys(s.indexes)) {
		named := map[string]string{"org.opencontainers.image.ref.name": image + ":" + s.tag()}
		if err := to.AppendIndex(s.indexes[image], layout.WithAnnotations(named)); err != nil {
			return err
		}
	}
	return nil
}

// writeArchives writes, for each image and platform, an archive that `docker load` reads.
func (s *imageSet) writeArchives(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // artefacts are for everybody
		return err
	}
	for image, index := range s.indexes {
		manifest, err := index.IndexManifest()
		if err != nil {
			return err
		}
		for _, d := range manifest.Manifests {
			built, err := index.Image(d.Digest)
			if err != nil {
				return err
			}
			tag, err := name.NewTag(image + ":" + s.tag())
			if err != nil {
				return err
			}
			archive := filepath.Join(dir, fmt.Sprintf("%s_%s_linux_%s.docker.tar", image, s.tag(), d.Platform.Architecture))
			if err := tarball.WriteToFile(archive, tag, built); err != nil {
				return err
			}
		}
	}
	return nil
}

// push pushes all images under a prefix, such as "ghcr.io/converge-engine", signs them if there is a key, and prints the reference of each.
func (s *imageSet) push(ctx context.Context, prefix string, key *signer, out io.Writer) error {
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	for _, image := range slices.Sorted(maps.Keys(s.indexes)) {
		tag, err := name.NewTag(prefix + "/" + image + ":" + s.tag())
		if err != nil {
			return fmt.Errorf("-push %s: %w", prefix, err)
		}
		if err := remote.WriteIndex(tag, s.indexes[image], options...); err != nil {
			return err
		}
		digest, err := s.indexes[image].Digest()
		if err != nil {
			return err
		}
		if key != nil {
			if err := signImage(ctx, tag.Context(), digest, key, options); err != nil {
				return fmt.Errorf("sign %s: %w", tag, err)
			}
		}
		fmt.Fprintf(out, "%s@%s\n", tag, digest)
	}
	return nil
}

// signImage pushes a signature as `cosign sign --key` does (its SIGNATURE_SPEC.md).
func signImage(ctx context.Context, repository name.Repository, digest v1.Hash, key *signer, options []remote.Option) error {
	payload, err := json.Marshal(map[string]any{
		"critical": map[string]any{
			"identity": map[string]string{"docker-reference": repository.Name()},
			"image":    map[string]string{"docker-manifest-digest": digest.String()},
			"type":     "cosign container image signature",
		},
		"optional": nil,
	})
	if err != nil {
		return err
	}
	signature, err := key.Sign(ctx, payload)
	if err != nil {
		return err
	}
	signed, err := mutate.Append(mutate.MediaType(mutate.ConfigMediaType(empty.Image, types.OCIConfigJSON), types.OCIManifestSchema1), mutate.Addendum{
		Layer:       static.NewLayer(payload, "application/vnd.dev.cosign.simplesigning.v1+json"),
		Annotations: map[string]string{"dev.cosignproject.cosign/signature": base64.StdEncoding.EncodeToString(signature)},
	})
	if err != nil {
		return err
	}
	return remote.Write(repository.Tag(digest.Algorithm+"-"+digest.Hex+".sig"), signed, options...)
}
