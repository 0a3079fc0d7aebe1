package origin

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// maxArchive is the limit of an unpacked archive, including headers and omitted files, in bytes.
const maxArchive = maxBytes + maxFiles*4096

// unpack writes an archive, tar in gzip, into an empty directory.
func unpack(ctx context.Context, archive io.Reader, dir, in string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close() // all data is written
	decompressed, err := gzip.NewReader(archive)
	if err != nil {
		return err
	}
	u := &unpacked{files{root: root, path: in}, map[string]bool{".": true}}
	limited := &io.LimitedReader{R: decompressed, N: maxArchive}
	if err := u.all(ctx, tar.NewReader(limited)); err != nil {
		if limited.N <= 0 {
			return u.addBytes(maxBytes + 1)
		}
		return err
	}
	if _, err := io.Copy(io.Discard, limited); err != nil { // so that all of it is verified
		return err
	}
	return u.checkPath("it")
}

// unpacked writes the entries of an archive.
type unpacked struct {
	files
	directories map[string]bool // that were created
}

func (u *unpacked) all(ctx context.Context, from *tar.Reader) error {
	for n := 0; ; n++ {
		entry, err := from.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case n == maxFiles:
			return errTooMany
		}
		if err := errors.Join(ctx.Err(), u.entry(entry, from)); err != nil {
			return err
		}
	}
}

// entry writes one entry and its parent directories. It never follows a link, and never writes a file twice.
func (u *unpacked) entry(e *tar.Header, content io.Reader) error {
	if e.Typeflag == tar.TypeXGlobalHeader { // metadata of the archive
		return nil
	}
	name := strings.TrimSuffix(strings.TrimPrefix(e.Name, "./"), "/")
	if name == "" || name == "." {
		return nil
	}
	for part := range strings.SplitSeq(name, "/") {
		if !isPlainName(part) {
			return badName(e.Name)
		}
	}
	if e.Typeflag == tar.TypeDir {
		return u.directory(name)
	}
	if err := u.directory(path.Dir(name)); err != nil {
		return err
	}
	switch e.Typeflag {
	case tar.TypeReg:
		return u.file(name, e.Size, e.Mode&0o100 != 0, content)
	case tar.TypeSymlink:
		return u.linkFrom(name, int64(len(e.Linkname)), strings.NewReader(e.Linkname))
	}
	return u.rejectInPath(name, "is neither a file, a directory nor a symbolic link")
}

// directory creates a directory and its parents.
func (u *unpacked) directory(name string) error {
	if u.directories[name] {
		return nil
	}
	if err := u.directory(path.Dir(name)); err != nil {
		return err
	}
	u.directories[name] = true
	if len(u.directories) > maxFiles {
		return errTooMany
	}
	return u.root.Mkdir(filepath.FromSlash(name), 0o700)
}
