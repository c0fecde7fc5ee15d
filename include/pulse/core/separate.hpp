#pragma once

/// Where the bodies of non-template functions live. A header declares them, and the .ipp file of the same name defines
/// them. Header-only is the default: the header includes that file at its end. With PULSE_SEPARATE_COMPILATION, which
/// the CMake target pulse::compiled defines, it does not, and a library contains the bodies.
///
/// PULSE_INLINE begins a function that is inline where its body is included, PULSE_CONSTEXPR one that is constexpr
/// there; elsewhere both are ordinary functions. Where the library compiles the planner, whose functions call one
/// another in constant expressions, the attribute makes the compiler keep functions that nothing calls.
///
/// PULSE_SEPARATE_HOST, which the CMake target pulse::compiled_host defines, and PULSE_HOST_INLINE do the same for the
/// CPU backend. Its bodies have a library of their own, with its own instruction set, vector width and OpenMP.
/// PULSE_SEPARATE_PICTURES, of pulse::compiled_pictures, and PULSE_PICTURES_INLINE do so for pictures and tokenizers,
/// whose dependencies not every program links.
#if defined(PULSE_SEPARATE_COMPILATION)
#define PULSE_INLINE
#define PULSE_CONSTEXPR
#elif defined(PULSE_COMPILING)
#define PULSE_INLINE inline __attribute__((used))
#define PULSE_CONSTEXPR constexpr __attribute__((used))
#else
#define PULSE_INLINE inline
#define PULSE_CONSTEXPR constexpr
#endif

#if defined(PULSE_SEPARATE_HOST)
#define PULSE_HOST_INLINE
#else
#define PULSE_HOST_INLINE inline
#endif

#if defined(PULSE_SEPARATE_PICTURES)
#define PULSE_PICTURES_INLINE
#else
#define PULSE_PICTURES_INLINE inline
#endif
