package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// file is one of an archive. Its path has slashes.
type file struct {
	path    string
	mode    fs.FileMode
	content []byte
}

// writeArchive writes a tar.gz whose files are in one folder. Equal files give equal bytes: they are sorted, belong to root, and have the
// time of the commit.
func writeArchive(path, folder string, files []file, at time.Time) error {
	files = slices.SortedFunc(slices.Values(files), func(a, b file) int { return strings.Compare(a.path, b.path) })
	var out bytes.Buffer
	zipped, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(zipped)
	for _, f := range files {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: folder + "/" + f.path, Mode: int64(f.mode), Size: int64(len(f.content)), ModTime: at, Uname: "root", Gname: "root", Format: tar.FormatPAX}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(f.content); err != nil {
			return err
		}
	}
	if err := errors.Join(archive.Close(), zipped.Close()); err != nil {
		return err
	}
	return os.WriteFile(path, out.Bytes(), 0o644) //nolint:gosec // artefacts are for everybody
}

// sumsName is the file that every release has.
const sumsName = "SHA256SUMS"

// writeSums writes SHA256SUMS of the files of a directory, as sha256sum -c reads it.
func writeSums(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, e := range entries {
		content, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(content), e.Name())
	}
	return os.WriteFile(filepath.Join(dir, sumsName), []byte(sums.String()), 0o644) //nolint:gosec // artefacts are for everybody
}
