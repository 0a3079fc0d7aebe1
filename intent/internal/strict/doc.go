// Package strict decodes YAML into Go structs and forgives nothing: an unknown field, a key given
// twice, a value of another type or a missing one is a Problem with its position, what was expected
// and, for a typo, what was probably meant. All problems of a document are found in one pass.
//
// The Go types are the only description of the format: names come from json tags, a field without
// omitempty is required, and a type says more by the interfaces below. Maps and lists may come
// from aliases and merge keys; what they expand to is bounded.
//
// It knows nothing of Converge's kinds, reads no files, and imports the YAML parser only.
package strict
