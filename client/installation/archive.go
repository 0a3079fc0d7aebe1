// Package installation exports an installation from its store and its Temporal namespace, and imports it into others: to move it, with all
// operations in flight, or as a backup (F4). The format is an archive: a compressed tar of the contents of the store. Its first entry
// describes it, and its last entry proves that it is complete.
package installation

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
)

// Schema is the format of an archive.
const Schema = "converge.archive/v1"

const (
	headerEntry  = "archive.json"
	trailerEntry = "end.json"
)

// Header is the first entry of an archive.
type Header struct {
	Schema string    `json:"schema"`
	ID     string    `json:"id"` // of this archive, random
	At     time.Time `json:"at"`
	By     string    `json:"by"`
	// Installation is its record. If it is marked as exported, it was ended where it ran before; otherwise this is a copy.
	Installation protocol.Installation `json:"installation"`
}

// IsMove reports whether the installation was ended where it ran before, so that it continues where the archive is imported.
func (h Header) IsMove() bool { return h.Installation.Exported != "" }

// trailer is the last entry.
type trailer struct {
	Entries int    `json:"entries"`
	Digest  string `json:"digest"` // SHA-256 in hex of the names and contents of all entries before it
}

// writer writes an archive.
type writer struct {
	zip     *gzip.Writer
	tar     *tar.Writer
	digest  hash.Hash
	at      time.Time
	trailer trailer
}

func newWriter(to io.Writer, h Header) (*writer, error) {
	zip := gzip.NewWriter(to)
	w := &writer{zip: zip, tar: tar.NewWriter(zip), digest: sha256.New(), at: h.At}
	data, err := json.MarshalIndent(h, "", "  ")
	if err == nil {
		err = w.add(headerEntry, data)
	}
	return w, err
}

// add writes an entry.
func (w *writer) add(name string, data []byte) error {
	sum(w.digest, name, data)
	w.trailer.Entries++
	err := w.tar.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(data)), ModTime: w.at})
	if err == nil {
		_, err = w.tar.Write(data)
	}
	return err
}

func (w *writer) close() error {
	w.trailer.Digest = hex.EncodeToString(w.digest.Sum(nil))
	data, err := json.Marshal(w.trailer)
	if err == nil {
		err = w.add(trailerEntry, data)
	}
	return errors.Join(err, w.tar.Close(), w.zip.Close())
}

func sum(h hash.Hash, name string, data []byte) {
	fmt.Fprintf(h, "%d %s %d\n", len(name), name, len(data))
	h.Write(data)
}

// reader reads an archive from beginning to end.
type reader struct {
	zip    *gzip.Reader
	tar    *tar.Reader
	digest hash.Hash
	read   int
}

// newReader refuses input that is not an archive.
func newReader(from io.Reader) (*reader, Header, error) {
	zip, err := gzip.NewReader(from)
	if errors.Is(err, io.EOF) {
		return nil, Header{}, errors.New("the archive is empty: writing it has failed [not-an-archive]")
	}
	if err != nil {
		return nil, Header{}, errors.New("not an archive: " + err.Error() + " [not-an-archive]") // not io.EOF, which callers treat as success
	}
	r := &reader{zip: zip, tar: tar.NewReader(zip), digest: sha256.New()}
	name, data, err := r.next()
	if err != nil {
		return nil, Header{}, err
	}
	var h Header
	if name != headerEntry || json.Unmarshal(data, &h) != nil || h.Schema != Schema || h.ID == "" || h.Installation.ID == "" {
		return nil, h, fmt.Errorf("not an archive of this version: expected %s of schema %s first, have %q of schema %q [not-an-archive]", headerEntry, Schema, name, h.Schema)
	}
	return r, h, nil
}

// next returns the next entry, or io.EOF after the last one of a complete archive.
func (r *reader) next() (name string, data []byte, err error) {
	header, err := r.tar.Next()
	if err != nil {
		return "", nil, truncatedError(err)
	}
	if header.Typeflag != tar.TypeReg || header.Size > store.MaxArchived {
		return "", nil, fmt.Errorf("the archive's %q: expected a plain file of %d bytes at most [not-an-archive]", header.Name, store.MaxArchived)
	}
	var b bytes.Buffer
	if _, err := io.Copy(&b, r.tar); err != nil {
		return "", nil, truncatedError(err)
	}
	if header.Name == trailerEntry {
		var e trailer
		if json.Unmarshal(b.Bytes(), &e) != nil || e.Entries != r.read || e.Digest != hex.EncodeToString(r.digest.Sum(nil)) {
			return "", nil, errors.New("the archive is damaged: its content has another digest [damaged-archive]")
		}
		if _, err := io.Copy(io.Discard, r.zip); err != nil {
			return "", nil, truncatedError(err)
		}
		return "", nil, io.EOF
	}
	r.read++
	sum(r.digest, header.Name, b.Bytes())
	return header.Name, b.Bytes(), nil
}

// truncatedError returns the error for an archive without its last entry, which is incomplete.
func truncatedError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("it ends before its last entry")
	}
	return fmt.Errorf("the archive is incomplete: %w [damaged-archive]", err)
}
