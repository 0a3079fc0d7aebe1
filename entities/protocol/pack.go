package protocol

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
)

// PlainLimit is the size in bytes up to which a spec or a state is readable JSON in history. Larger values are packed.
const PlainLimit = 16 << 10

// Packed is JSON, compressed with gzip. Large values with many names become much smaller.
type Packed []byte

// Pack packs a value.
func Pack(v any) (Packed, error) {
	plain, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	return packed(gzip.NewWriter(&out), plain, &out)
}

// Packer packs many values, one at a time, faster and with less compression. It reuses its buffers, which take most of a megabyte. The zero
// value is ready to use.
type Packer struct{ zip *gzip.Writer }

// Pack packs a value that is already JSON.
func (p *Packer) Pack(plain []byte) (Packed, error) {
	var out bytes.Buffer
	if p.zip == nil {
		p.zip, _ = gzip.NewWriterLevel(&out, gzip.BestSpeed) // the level is valid
	}
	p.zip.Reset(&out)
	return packed(p.zip, plain, &out)
}

func packed(zip *gzip.Writer, plain []byte, out *bytes.Buffer) (Packed, error) {
	_, err := zip.Write(plain)
	if err = errors.Join(err, zip.Close()); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// Unpack decodes a packed value into v.
func (p Packed) Unpack(v any) error {
	r, err := gzip.NewReader(bytes.NewReader(p))
	if err != nil {
		return err
	}
	plain, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	return json.Unmarshal(plain, v)
}

// Large reports whether a value should be packed.
func Large(v any) bool {
	plain, err := json.Marshal(v)
	return err == nil && len(plain) > PlainLimit
}
